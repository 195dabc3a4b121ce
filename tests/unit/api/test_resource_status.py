"""Whether an update changes what a pod takes on its node is decided without adding up its requests
again.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kubesched.api.core_v1 import ContainerStatus, Pod, PodCondition, ResourceRequirements
from kubesched.api.resources import accounted_requests, nonzero_requests, same_resource_status
from kubesched.testing import make_pod

amounts = st.sampled_from([None, {}, {"cpu": "1"}, {"cpu": "1000m"}, {"cpu": "2", "memory": "1Gi"}])


@st.composite
def statuses(draw: st.DrawFn) -> tuple[list[ContainerStatus], list[PodCondition]]:
    actual, allocated = draw(amounts), draw(amounts)
    resources = draw(st.sampled_from([None, ResourceRequirements(requests=actual)]))
    status = ContainerStatus(name="c0", resources=resources, allocated_resources=allocated)
    pending = PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    return draw(st.sampled_from([[], [status]])), draw(st.sampled_from([[], [pending]]))


@given(asked=amounts, before=statuses(), after=statuses())
def test_statuses_that_are_called_the_same_give_the_same_requests(asked, before, after) -> None:
    def version(said: tuple[list[ContainerStatus], list[PodCondition]]) -> Pod:
        pod = make_pod("p").build()
        (container,) = pod.spec.containers
        container = structs.replace(
            container, name="c0", resources=ResourceRequirements(requests=asked)
        )
        status = structs.replace(pod.status, container_statuses=said[0], conditions=said[1])
        spec = structs.replace(pod.spec, containers=[container])
        return structs.replace(pod, spec=spec, status=status)

    old, new = version(before), version(after)
    if same_resource_status(old, new):
        assert accounted_requests(old) == accounted_requests(new)
        assert nonzero_requests(old) == nonzero_requests(new)


def test_a_report_of_what_was_asked_for_is_no_change() -> None:
    pod = make_pod("p").cpu("1").build()
    (container,) = pod.spec.containers
    said = ContainerStatus(
        name=container.name,
        resources=ResourceRequirements(requests={"cpu": "1"}),
        allocated_resources={"cpu": "1"},
    )
    reported = structs.replace(pod, status=structs.replace(pod.status, container_statuses=[said]))
    assert same_resource_status(pod, reported)
    more = structs.replace(said, allocated_resources={"cpu": "2"})
    grown = structs.replace(pod, status=structs.replace(pod.status, container_statuses=[more]))
    assert not same_resource_status(pod, grown)
