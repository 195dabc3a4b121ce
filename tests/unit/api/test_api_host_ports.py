"""Which host ports a pod holds and when two of them collide."""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Container, ContainerPort, Pod, PodSpec
from kubesched.api.host_ports import HostPort, any_conflict, pod_host_ports


def container(*ports, restart_policy=None):
    return Container(
        ports=[ContainerPort(host_port=n, protocol=p, host_ip=ip) for n, p, ip in ports],
        restart_policy=restart_policy,
    )


def test_sidecars_come_first_and_ordinary_init_containers_do_not_count():
    pod = Pod(
        spec=PodSpec(
            init_containers=[
                container((1, "TCP", "")),
                container((2, "UDP", "10.0.0.1"), restart_policy="Always"),
            ],
            containers=[container((3, "", ""), (0, "TCP", "")), Container()],
        )
    )
    assert pod_host_ports(pod) == (HostPort("10.0.0.1", "UDP", 2), HostPort("0.0.0.0", "TCP", 3))
    assert pod_host_ports(Pod()) == ()


@pytest.mark.parametrize(
    ("wanted", "used", "collide"),
    [
        pytest.param(("127.0.0.1", "TCP", 80), ("127.0.0.1", "TCP", 80), True, id="the same"),
        pytest.param(
            ("127.0.0.1", "UDP", 80), ("127.0.0.1", "TCP", 80), False, id="another protocol"
        ),
        pytest.param(
            ("127.0.0.1", "TCP", 80), ("127.0.0.2", "TCP", 80), False, id="another address"
        ),
        pytest.param(("127.0.0.1", "TCP", 80), ("127.0.0.1", "TCP", 81), False, id="another port"),
        pytest.param(
            ("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="wanted on every address"
        ),
        pytest.param(
            ("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="used on every address"
        ),
        pytest.param(
            ("0.0.0.0", "UDP", 80),
            ("10.0.0.1", "TCP", 80),
            False,
            id="every address, other protocol",
        ),
        pytest.param(
            ("::", "TCP", 80), ("10.0.0.1", "TCP", 80), False, id="only 0.0.0.0 is a wildcard"
        ),
        pytest.param(("0.0.0.0", "TCP", 0), ("0.0.0.0", "TCP", 0), False, id="no port"),
    ],
)
def test_collisions(wanted, used, collide):
    assert HostPort(*wanted).conflicts_with(HostPort(*used)) is collide
    assert (
        any_conflict([HostPort("1.1.1.1", "TCP", 9), HostPort(*wanted)], [HostPort(*used)])
        is collide
    )
