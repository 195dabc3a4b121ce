"""Device claims of pod groups (gate DRAWorkloadResourceClaims), and claims that members share."""

import asyncio
from typing import ClassVar

import pytest
from dra_objects import allocation, claim, device_class, resource_slice
from group_scenarios import NV, PUS, Groups
from msgspec import structs

from kubesched.api.meta import OwnerReference
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.api.scheduling_v1beta1 import PodGroup, PodGroupResourceClaimStatus
from kubesched.framework.interfaces import PreBindPlugin
from kubesched.framework.preemption.executor import rehearse
from kubesched.framework.status import Code, Status

GATE = "DRAWorkloadResourceClaims"
ENTRY = {"name": "shared", "resourceClaimName": "c"}
OF_TEMPLATE = {"name": "shared", "resourceClaimTemplateName": "t"}
OF_GROUP = ("scheduling.k8s.io", "podgroups", "g", "uid-g")
WITHOUT_PREEMPTION = """
profiles:
- plugins:
    podGroupPostFilter: {disabled: [{name: DefaultPreemption}]}
"""


class Claims(Groups):
    """Nodes with one device each, and a claim."""

    def __init__(self, *nodes, claims=(), **settings):
        super().__init__(*nodes, **settings)
        self.add(device_class())
        for number in range(1, len(nodes) + 1):
            node = f"n{number}"
            self.add(resource_slice(f"s-{node}", f"gpu-{node}", nodeName=node, pool=node))
        self.add(*(claims or [claim("c")]))

    def claim(self, name="c"):
        return self.find(ResourceClaim, "default", name)

    def users(self, name="c"):
        used = self.claim(name).status.reserved_for or ()
        return [(each.api_group, each.resource, each.name, each.uid) for each in used]

    def holds_nothing(self):
        """Whether nothing is assumed or in flight."""
        (framework,) = self.assembly.frameworks.values()
        return framework.handle.dra_manager.is_idle()

    def devices(self, name="c"):
        found = self.claim(name).status.allocation
        return [] if found is None else [each.device for each in found.devices.results]


def allocated(node="gone", users=()):
    selector = {
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            ]
        }
    }
    status = {"allocation": {**allocation(("r0", "pool", "old")), **selector}}
    return claim("c", status=status | ({"reservedFor": list(users)} if users else {}))


def reference(name="g", uid="uid-g"):
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": uid}


@pytest.mark.parametrize("gate", ["", GATE])
def test_members_share_a_claim_that_the_first_allocates(gate):  # 88
    """With the gate it is reserved once for the group, otherwise once for each pod."""
    with Claims(4, 4, 4, gates=gate) as world:
        world.group("g", 3, **({"resourceClaims": [ENTRY]} if gate else {}))
        world.pods("g", "p1", "p2", "p3", resourceClaims=[ENTRY])
        world.settle()
        assert len(set(world.nodes_of("p1", "p2", "p3"))) == 1
        assert world.node_of("p1")
        assert world.devices() == [f"gpu-{world.node_of('p1')}"]
        pods = [("", "pods", name, world.pod(name).metadata.uid) for name in ("p1", "p2", "p3")]
        assert sorted(world.users()) == ([OF_GROUP] if gate else sorted(pods))
        assert world.group_says("g")[0] == "True"
        assert world.holds_nothing()


def test_only_an_equal_entry_is_the_groups():
    """Name and source have to agree; others are reserved for the pod."""
    with Claims(4, claims=[claim("c")], gates=GATE) as world:
        world.group("g", 1, resourceClaims=[{"name": "other", "resourceClaimName": "c"}])
        world.pods("g", "p1", resourceClaims=[ENTRY])
        world.settle()
        assert world.users() == [("", "pods", "p1", world.pod("p1").metadata.uid)]


def test_a_member_that_comes_later_uses_the_reservation():
    with Claims(4, 4, gates=GATE) as world:
        world.group("g", 1, resourceClaims=[ENTRY])
        world.pods("g", "p1", resourceClaims=[ENTRY])
        world.settle()
        world.pods("g", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.node_of("p2") == world.node_of("p1") != ""
        assert world.users() == [OF_GROUP]


def test_pods_of_others_wait_for_an_allocation_in_flight_and_nothing_stays():
    """Room for two of three: the claim is given back with the trial."""
    with Claims(2, gates=GATE) as world:
        world.group("g", 3, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", "p3", resourceClaims=[ENTRY])
        world.settle()
        assert world.nodes_of("p1", "p2", "p3") == ["", "", ""]
        assert world.claim().status.allocation is None
        assert world.holds_nothing()
        world.pods("", "single", resourceClaims=[ENTRY])
        world.settle()
        assert world.node_of("single") == "n1"


@pytest.mark.parametrize("users", [(), (reference(),)])
def test_a_claim_of_a_node_that_is_gone_is_deallocated(users):  # 90
    """The message is that of the cycle that freed it; the next one allocates anew."""
    claims = [allocated(users=users)]
    with Claims(4, claims=claims, gates=GATE, config=WITHOUT_PREEMPTION) as world:
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.message("p1") == (
            "0/1 nodes are available: 1 resourceclaim not available on the node."
        )
        # A claim that no pod holds is freed for the only member that was tried.
        freed = "of PodGroup ResourceClaim" if users else "and deletion of ResourceClaims"
        assert world.group_says("g")[2].endswith(f", deallocation {freed} completed")
        assert (world.devices(), world.users()) == ([], [])
        world.advance(10)
        world.settle()
        assert world.nodes_of("p1", "p2") == ["n1", "n1"]
        assert (world.devices(), world.users()) == (["gpu-n1"], [OF_GROUP])


def test_a_deallocation_that_is_never_started_is_closed():
    """A scheduler that ends drops it; a coroutine left inside would warn, which is an error."""
    claims = [allocated()]
    with Claims(4, claims=claims, gates=GATE, config=WITHOUT_PREEMPTION) as world:
        (framework,) = world.assembly.frameworks.values()
        dropped = []

        def drop(work, what):
            work.close()
            dropped.append(what)

        framework.handle.spawn = drop
        world.group("g", 1, resourceClaims=[ENTRY])
        world.pods("g", "p1", resourceClaims=[ENTRY])
        world.settle()
        assert dropped == ["deallocation for pod default/p1"]
        assert world.devices() == ["old"]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (allocated(), "deallocation"),
        (allocated("n1", [reference()]), "ResourceClaim unreserved for PodGroup"),
    ],
)
def test_a_rehearsal_frees_nothing(held, told):
    """What `explain` tries has no effects, and leaves no coroutine that is never awaited."""
    with Claims(1, claims=[held], gates=GATE, config=WITHOUT_PREEMPTION) as world:
        (framework,) = world.assembly.frameworks.values()
        before = world.claim()
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        with rehearse(framework.handle):
            world.settle()
        assert told in world.group_says("g")[2]
        assert world.claim() is before


def test_a_claim_that_only_a_trial_allocated_is_not_written():
    """It was allocated beside the first member, where the second has no room."""
    with Claims(1, 1, gates=GATE) as world:
        world.group("g", 2, resourceClaims=[ENTRY])
        before = world.claim()
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.nodes_of("p1", "p2") == ["", ""]
        assert world.claim() is before
        assert world.holds_nothing()


def test_a_reservation_is_removed_if_no_member_runs():
    """The devices would do, but not all members fit beside them: the group lets go of them."""
    held = allocated("n1", [reference(), reference("h", "uid-h")])
    with Claims(1, claims=[held], gates=GATE) as world:
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.users() == [("scheduling.k8s.io", "podgroups", "h", "uid-h")]
        assert "ResourceClaim unreserved for PodGroup" in world.group_says("g")[2]
        assert NV not in world.group_says("g")[2], "preemption is not asked"


def test_the_reservation_of_another_group_stays():
    other = reference("h", "uid-h")
    with Claims(1, claims=[allocated("n1", [other])], gates=GATE) as world:
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.users() == [("scheduling.k8s.io", "podgroups", "h", "uid-h")]
        assert "unreserved" not in world.group_says("g")[2]


def test_a_group_that_runs_keeps_its_reservation():
    with Claims(1, gates=GATE) as world:
        world.group("g", 1, resourceClaims=[ENTRY])
        world.pods("g", "p1", resourceClaims=[ENTRY])
        world.settle()
        world.pods("g", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.nodes_of("p1", "p2") == ["n1", ""]
        assert world.users() == [OF_GROUP]


# -- templates -------------------------------------------------------------------------------------


def generated(name, uid="uid-g"):
    made = claim("g-shared-x")
    owner = OwnerReference(
        api_version="scheduling.k8s.io/v1beta1",
        kind="PodGroup",
        name=name,
        uid=uid,
        controller=True,
    )
    return structs.replace(made, metadata=structs.replace(made.metadata, owner_references=[owner]))


def test_members_use_the_claim_that_was_made_for_their_group():
    with Claims(4, claims=[generated("g")], gates=GATE) as world:
        world.group("g", 2, resourceClaims=[OF_TEMPLATE])
        world.pods("g", "p1", "p2", resourceClaims=[OF_TEMPLATE])
        world.settle()
        assert world.nodes_of("p1", "p2") == ["", ""]
        for name in ("p1", "p2"):
            statuses = [{"name": "shared", "resourceClaimName": "g-shared-x"}]
            world.change_pod(name, "status", resourceClaimStatuses=statuses)
        world.settle()
        assert world.nodes_of("p1", "p2") == ["n1", "n1"]
        assert world.users("g-shared-x") == [OF_GROUP]


@pytest.mark.parametrize(("gate", "owner"), [("", "g"), (GATE, "h")])
def test_a_claim_of_another_owner_is_refused(gate, owner):
    with Claims(4, claims=[generated(owner)], gates=gate) as world:
        world.group("g", 1)
        statuses = [{"name": "shared", "resourceClaimName": "g-shared-x"}]
        world.pods("g", "p1", resourceClaims=[OF_TEMPLATE])
        world.change_pod("p1", "status", resourceClaimStatuses=statuses)
        world.settle()
        assert world.node_of("p1") == ""
        assert world.claim("g-shared-x").status.allocation is None


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (None, "PodGroup default/g: ResourceClaim not created yet"),
        ("nowhere", 'could not find ResourceClaim "default/nowhere"'),
    ],
)
def test_a_claim_of_the_group_that_is_missing_fails_the_cycle(names, problem):
    """The group has a claim that its pods do not use, and they do not fit."""
    with Claims(1, gates=GATE) as world:
        world.group("g", 2, resourceClaims=[OF_TEMPLATE])
        if names is not None:
            group = world.find(PodGroup, "default", "g")
            made = [PodGroupResourceClaimStatus(name="shared", resource_claim_name=names)]
            status = structs.replace(group.status, resource_claim_statuses=made)
            world.update(structs.replace(group, status=status))
        world.pods("g", "p1", "p2")
        world.settle()
        assert world.group_says("g")[2].endswith(problem)
        assert PUS not in world.group_says("g")[2]


def test_a_group_deleted_while_it_waits_takes_no_device():
    with Claims(1, gates=GATE) as world:
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", resourceClaims=[ENTRY])
        world.settle()
        world.delete(world.find(PodGroup, "default", "g"))
        world.pods("g", "p2", resourceClaims=[ENTRY])
        world.settle()
        assert world.nodes_of("p1", "p2") == ["", ""]
        assert world.claim().status.allocation is None
        assert world.holds_nothing()


class RefusesLate(PreBindPlugin):
    """Refuses each pod named here once, a second after it was chosen a node for."""

    name = "RefusesLate"
    refused: ClassVar[list[str]] = []

    async def pre_bind(self, state, pod, node_name):
        if pod.metadata.name not in self.refused:
            return None
        self.refused.remove(pod.metadata.name)
        await asyncio.sleep(1)
        return Status(Code.ERROR, ("not yet",))


def test_a_member_gives_up_its_share_while_the_allocation_is_written_for_another(monkeypatch):
    """Simulation seed 2636 with groups: the devices stayed in flight for a member that failed."""
    monkeypatch.setattr(RefusesLate, "refused", ["p2"])
    in_order = "[{name: RefusesLate}, {name: DynamicResources}]"
    config = (
        f"profiles: [{{plugins: {{preBind: {{disabled: [{{name: '*'}}], enabled: {in_order}}}}}}}]"
    )
    with Claims(4, gates=GATE, config=config, plugins=[RefusesLate]) as world:
        update_status = world.client.update_status

        async def slowly(obj):
            await asyncio.sleep(5)
            return await update_status(obj)

        world.client.update_status = slowly
        world.group("g", 2, resourceClaims=[ENTRY])
        world.pods("g", "p1", "p2", resourceClaims=[ENTRY])
        world.run(30)
        assert RefusesLate.refused == []
        assert world.nodes_of("p1", "p2") == ["n1", "n1"]
        assert world.holds_nothing()
