"""State that is kept up to date, compared with what it should be."""

from __future__ import annotations

import numpy as np

from kubesched.client.informers.store import Store
from kubesched.client.pool import HttpTransport
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.volumes.attached_volumes import AttachedVolumes
from kubesched.plugins.helper.volumes.volume_names import CannotTell


def check_pool(pool: HttpTransport) -> None:
    """The counts match the connections. Call it only while nothing is being connected."""
    streams = sum(connection.is_for_stream for connection in pool._open)
    assert pool._stream_count == streams, "streams are miscounted"
    assert pool._slot_count == len(pool._open) - streams, "connections are miscounted"
    assert pool._slot_count <= pool._settings.max_connections, "too many connections"
    idle = [connection for connection in pool._idle if connection.is_open]
    assert len(set(idle)) == len(idle), "a connection is idle twice"
    assert all(connection in pool._open for connection in idle), "an idle one is unknown"


def check_store(store: Store) -> None:
    """The keys of every namespace equal those of a fresh count."""
    expected: dict[str, list[str]] = {}
    for key, obj in store._objects.items():
        if obj.metadata.namespace:
            expected.setdefault(obj.metadata.namespace, []).append(key)
    found = {namespace: list(keys) for namespace, keys in store._keys_by_namespace.items()}
    assert found == expected, "the namespaces do not match the objects"


def check_attached(attached: AttachedVolumes) -> None:
    """All state equals a fresh count."""
    attached.sync()
    for row, name in enumerate(attached.table.names):
        view = NodeColumns(attached.table, np.array([row]))
        try:
            held = {} if not name else attached.used_by(view.pods_at(0))
        except CannotTell:
            assert row in attached.broken, f"the problem with node {name} is not recorded"
            continue
        assert row not in attached.broken, f"node {name} has a recorded problem, but none exists"
        held.update({volume.name: volume for volume in attached.attached_at(row)})
        drivers = [volume.driver for volume in held.values()]
        for driver, column in attached._counts.items():
            assert column.cells[row] == drivers.count(driver), (
                f"volumes of {driver} at node {name} drifted"
            )
