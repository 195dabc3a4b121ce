"""Random storage worlds: the same objects in the listers and table the plugins read, and in the
scalar world.

Names are few, so that claims, volumes, classes and pods meet; every object may be changed or
removed at any time.
"""

import copy

import msgspec
import numpy as np
from hypothesis import strategies as st
from plugin_strategies import node_of, pod_of
from scalar import storage as twin
from storage_objects import (
    BETA_REGION,
    BETA_ZONE,
    EPHEMERAL,
    HOSTNAME,
    MIGRATED,
    REGION,
    SELECTED_NODE,
    ZONE,
    MemoryListers,
    attachment_json,
    capacity_json,
    claim_json,
    csi_node_json,
    storage_class_json,
    volume_json,
)

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.testing import make_node, make_pod

RECORDS = {
    "claims": PersistentVolumeClaim,
    "volumes": PersistentVolume,
    "classes": StorageClass,
    "csi_nodes": CSINode,
    "drivers": CSIDriver,
    "capacities": CSIStorageCapacity,
    "attachments": VolumeAttachment,
}
NODES = [f"n{number}" for number in range(5)]
CLAIMS = ["c0", "c1", "c2", "c3", "q-v0", "q-v1"]
VOLUMES = ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7"]
CLASSES = ["fast", "fast", "slow", "old"]
DRIVERS = ["csi.example.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io"]
ZONES = ["us-a1-x", "us-a1-y", "eu-b1-x"]
ALL_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
LARGE = ["4Gi", "5Gi", "6Gi"]
SIZES = ["1Gi", "2Gi", "1024Mi", "3G", "1500m"]
EBS_ZONE, GCE_ZONE = "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"
KEYS = [ZONE, ZONE, BETA_ZONE, REGION, BETA_REGION, EBS_ZONE, GCE_ZONE, HOSTNAME]


class StorageWorlds:
    """Makes random objects and applies them to both sides."""

    def __init__(self, random):
        self.random = random
        self.is_tidy = random.random() < 0.6
        """In a tidy world nearly everything exists and makes sense: then much is to be matched and
        provisioned.
        """
        self.world = twin.World()
        self.listers = MemoryListers()
        self.table = NodeTable(capacity=2)
        self._infos = {}
        self._made = 0

    def chance(self, share):
        return self.random.random() < share

    def odd(self, share):
        """Something that is not as it should be."""
        return self.random.random() < (share / 20 if self.is_tidy else share)

    def namespace(self):
        return "else" if self.odd(0.25) else "default"

    # -- both sides --------------------------------------------------------------------------------

    def put(self, kind, json):
        meta = json["metadata"]
        self._made += 1
        meta["resourceVersion"] = str(self._made)
        key = (meta["namespace"], meta["name"]) if kind == "claims" else meta["name"]
        # An object that is replaced keeps its place in the lister only while it exists.
        getattr(self.world, kind)[key] = json
        self.listers.put(msgspec.convert(json, RECORDS[kind]))

    def remove(self, kind, key):
        json = getattr(self.world, kind).pop(key)
        self.listers.remove(msgspec.convert(json, RECORDS[kind]))

    def put_node(self, json):
        self.world.nodes[json["metadata"]["name"]] = json
        self.table.set_node(node_of(json))

    def remove_node(self, name):
        del self.world.nodes[name]
        self.table.remove_node(name)

    def add_pod(self):
        json = self.pod(f"r{self._made}", self.random.choice(NODES))
        self._made += 1
        info = PodInfo(pod_of(json))
        self._infos[info.uid] = info
        self.world.pods[info.uid] = json
        self.table.add_pod(info, json["spec"]["nodeName"])

    def remove_pod(self):
        if self._infos:
            uid = self.random.choice(sorted(self._infos))
            json, info = self.world.pods.pop(uid), self._infos.pop(uid)
            self.table.remove_pod(info, json["spec"]["nodeName"])

    def info_of(self, json):
        return self._infos[json["metadata"]["uid"]]

    def views(self):
        """All rows as a slice, and the living ones as an index in some order."""
        rows = [self.table.row_of[name] for name in sorted(self.world.nodes)]
        self.random.shuffle(rows)
        return [NodeColumns(self.table), NodeColumns(self.table, np.array(rows, dtype=np.intp))]

    # -- making things up --------------------------------------------------------------------------

    def fill(self):
        for name in NODES[: self.random.randint(1, len(NODES))]:
            self.put_node(self.node(name))
        for name in dict.fromkeys(CLASSES):
            if not self.odd(0.1):
                self.put("classes", self.storage_class(name))
        for name in VOLUMES[: self.random.randint(4 if self.is_tidy else 0, len(VOLUMES))]:
            self.put("volumes", self.volume(name))
        for name in CLAIMS:
            if not self.odd(0.15):
                self.put("claims", self.claim(name, self.namespace()))
        for name in NODES:
            if self.chance(0.6):
                self.put("csi_nodes", self.csi_node(name))
        for name in DRIVERS:
            if self.chance(0.5):
                self.put("drivers", self.driver(name))
        for number in range(self.random.randint(0, 5)):
            self.put("capacities", self.capacity(f"k{number}"))
        for number in range(self.random.randint(0, 3)):
            self.put("attachments", self.attachment(f"a{number}"))
        for _ in range(self.random.randint(0, 5)):
            self.add_pod()

    def change(self):
        """One random change."""
        random = self.random
        match random.randint(0, 9):
            case 0:
                self.add_pod()
            case 1:
                self.remove_pod()
            case 2:
                self.put_node(self.node(random.choice(NODES)))
            case 3 if len(self.world.nodes) > 1 and self.chance(0.5):
                self.remove_node(random.choice(sorted(self.world.nodes)))
            case 4:
                kind = random.choice(sorted(RECORDS))
                known = sorted(getattr(self.world, kind))
                if known:
                    self.remove(kind, random.choice(known))
            case 5:
                self.put("csi_nodes", self.csi_node(random.choice(NODES)))
            case 6:
                self.put("volumes", self.volume(random.choice(VOLUMES)))
            case 7:
                self.put("attachments", self.attachment(f"a{random.randint(0, 3)}"))
            case 8:
                self.put("classes", self.storage_class(random.choice(CLASSES)))
            case _:
                claim = self.claim(random.choice(CLAIMS), self.namespace())
                self.put("claims", claim)

    def labels(self):
        return {key: self.random.choice(ZONES) for key in KEYS[:-1] if self.chance(0.35)}

    def node(self, name):
        builder = make_node(name)
        for key, value in self.labels().items():
            builder.label(key, value)
        return builder.json

    def expressions(self):
        random, result = self.random, []
        for _ in range(random.choice([1, 1, 1, 2])):
            key = random.choice(KEYS)
            pool = NODES if key == HOSTNAME else ZONES
            values = random.sample(pool, random.randint(0 if self.odd(0.1) else 1, 2))
            operator = random.choice(["In", "In", "In", "NotIn", "Exists"])
            result.append(
                {"key": key, "operator": operator, "values": [] if operator == "Exists" else values}
            )
        return result

    def affinity(self):
        random = self.random
        if self.chance(0.5 if self.is_tidy else 0.3):
            return None
        terms = []
        for _ in range(0 if self.odd(0.2) else random.choice([1, 1, 1, 2])):
            term = {"matchExpressions": self.expressions()}
            if self.chance(0.15):
                field = {"key": "metadata.name", "operator": "In", "values": [random.choice(NODES)]}
                term = (
                    {"matchFields": [field]}
                    if self.chance(0.5)
                    else {**term, "matchFields": [field]}
                )
            terms.append(term)
        return {"required": {"nodeSelectorTerms": terms}}

    def source(self):
        random = self.random
        match random.randint(0, 7):
            case 0 | 1 | 2:
                driver = random.choice(DRIVERS)
                return {
                    "csi": {"driver": driver, "volumeHandle": random.choice(["h0", "h1", "vol-1"])}
                }
            case 3:
                return {"awsElasticBlockStore": self.disk("awsElasticBlockStore")}
            case 4:
                return {"gcePersistentDisk": self.disk("gcePersistentDisk")}
            case 5:
                return {"azureDisk": self.disk("azureDisk")}
            case 6:
                return {"portworxVolume": {"volumeID": random.choice(["p0", ""])}}
        return {"nfs": {"server": "s", "path": "/"}}

    def disk(self, kind):
        random = self.random
        if kind == "awsElasticBlockStore":
            ids = ["vol-1", "vol-2", "aws://us-a1-x/vol-1", "aws:///vol-2", "aws://zone/disk"]
            return {"volumeID": random.choice(ids)}
        if kind == "gcePersistentDisk":
            return {"pdName": random.choice(["d0", "d1"]), "readOnly": self.chance(0.5)}
        if kind == "azureDisk":
            disk = {"diskName": "d", "diskURI": random.choice(["u0", "u1"])}
            return (
                disk if self.chance(0.5) else {**disk, "kind": random.choice(["Managed", "Shared"])}
            )
        if kind == "iscsi":
            return {"iqn": random.choice(["i0", "i1"]), "readOnly": self.chance(0.5)}
        monitors = random.sample(["m0", "m1", "m2"], random.randint(1, 2))
        return {
            "image": "i",
            "pool": random.choice(["p0", "p1"]),
            "monitors": monitors,
            "readOnly": self.chance(0.5),
        }

    def volume(self, name):
        random = self.random
        labels = {
            key: "__".join(random.sample(ZONES, random.choice([1, 1, 2])))
            for key in (ZONE, BETA_ZONE, REGION)
            if self.chance(0.2)
        }
        if self.chance(0.05):
            labels[ZONE] = f"{ZONES[0]}__"
        if self.chance(0.3):
            labels["disk"] = random.choice(["ssd", "hdd"])
        reserved = None
        if self.chance(0.2):
            who = random.choice(CLAIMS)
            reserved = (who, random.choice(["", f"uid-default-{who}", "another"]))
        json = volume_json(
            name,
            storage_class=random.choice(CLASSES),
            size=None if self.odd(0.15) else random.choice([*SIZES, *LARGE]),
            modes=random.choice([("ReadWriteOnce",), ALL_MODES, ALL_MODES]),
            reach=self.affinity(),
            reserved=reserved,
            phase="Bound" if self.odd(0.25) else "Available",
            labels=labels,
            deleting=self.odd(0.05),
            **self.source(),
        )
        if self.odd(0.1):
            json["spec"]["volumeMode"] = "Block"
        if self.odd(0.1):
            json["spec"]["volumeAttributesClassName"] = random.choice(["", "gold"])
        if self.chance(0.1):
            json["metadata"]["annotations"][twin.BETA_CLASS] = random.choice(CLASSES)
        return json

    def claim(self, name, namespace):
        random = self.random
        annotations = {}
        if self.chance(0.15):
            annotations[SELECTED_NODE] = random.choice(NODES)
        if self.chance(0.1):
            annotations[twin.BETA_CLASS] = random.choice([*CLASSES, ""])
        more = {}
        if self.chance(0.15):
            more["selector"] = {"matchLabels": {"disk": random.choice(["ssd", "hdd"])}}
        if self.chance(0.05):
            more["selector"] = {
                "matchExpressions": [{"key": "k", "operator": "Maybe", "values": []}]
            }
        if self.odd(0.1):
            more["volumeMode"] = random.choice(["Block", "Filesystem"])
        if self.odd(0.1):
            more["volumeAttributesClassName"] = random.choice(["", "gold"])
        named = random.choice(VOLUMES) if self.chance(0.3) else ""
        if self.odd(0.1):
            named = "gone"
        return claim_json(
            name,
            namespace,
            storage_class=random.choice(["gone", None])
            if self.odd(0.25)
            else random.choice(CLASSES),
            volume=named,
            bound=bool(named) and not self.odd(0.1),
            size=random.choice([*SIZES, None]),
            modes=random.choice([("ReadWriteOnce",), ("ReadWriteOncePod",), ("ReadWriteMany",)]),
            annotations=annotations,
            owner=random.choice(["uid-q", "uid-q", "stranger", None])
            if name.startswith("q-")
            else None,
            phase="Lost" if self.chance(0.04) else "",
            deleting=self.chance(0.04),
            **more,
        )

    def storage_class(self, name):
        random = self.random
        mode = "Immediate" if self.odd(0.15) else "WaitForFirstConsumer"
        more = {}
        if self.chance(0.3):
            terms = []
            for _ in range(random.randint(0, 2)):
                zones = random.sample(ZONES, random.randint(0 if self.chance(0.1) else 1, 2))
                term = {"matchLabelExpressions": [{"key": random.choice(KEYS), "values": zones}]}
                terms.append({} if self.chance(0.1) else term)
            more["allowedTopologies"] = terms
        provisioners = [
            *DRIVERS,
            "kubernetes.io/no-provisioner",
            "kubernetes.io/aws-ebs",
            "kubernetes.io/azure-file",
        ]
        return storage_class_json(
            name,
            None if self.odd(0.04) else mode,
            random.choice(provisioners),
            **more,
        )

    def csi_node(self, name):
        random = self.random
        limits = {driver: random.choice([None, 0, 1, 2]) for driver in DRIVERS if self.chance(0.6)}
        plugins = ["kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk"]
        json = csi_node_json(name, limits)
        if self.chance(0.5):
            migrated = random.sample(plugins, random.randint(0, 3))
            json["metadata"]["annotations"][MIGRATED] = ",".join(migrated)
        return json

    def driver(self, name):
        return {"metadata": {"name": name}, "spec": {"storageCapacity": self.chance(0.7)}}

    def capacity(self, name):
        random = self.random
        segment = random.choice(
            [
                {"matchLabels": {ZONE: random.choice(ZONES)}},
                {"matchLabels": {HOSTNAME: random.choice(NODES)}},
                {"matchLabels": {}},
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ZONES[:2]}]},
                {"matchExpressions": [{"key": ZONE, "operator": "Maybe"}]},
                None,
            ]
        )
        amounts = {}
        if self.chance(0.9):
            amounts["capacity"] = random.choice([*SIZES, "0"])
        if self.chance(0.3):
            amounts["maximumVolumeSize"] = random.choice(SIZES)
        return capacity_json(name, random.choice(CLASSES), segment, **amounts)

    def attachment(self, name):
        random = self.random
        return attachment_json(
            name,
            random.choice(NODES),
            random.choice([*VOLUMES, None]),
            random.choice([*DRIVERS, ""]),
        )

    def pod(self, name, node=""):
        random = self.random
        sources = []
        for _ in range(random.choice([1, 2, 3, 4] if self.is_tidy else [1, 1, 2, 3])):
            kind = random.choice(["claim"] * 9 + ["ephemeral", "token", *DISK_KINDS])
            if kind == "claim":
                claim = "" if self.odd(0.05) else random.choice(CLAIMS[:4])
                sources.append({"persistentVolumeClaim": {"claimName": claim}})
            elif kind == "ephemeral":
                sources.append(copy.deepcopy(EPHEMERAL))
            elif kind == "token":
                sources.append({"projected": {}})
            else:
                sources.append({kind: self.disk(kind)})
        builder = make_pod(name, self.namespace()).on(node)
        volumes = [{"name": f"v{at}", **source} for at, source in enumerate(sources)]
        return builder.uid(f"uid-{name}").spec(volumes=volumes).json


DISK_KINDS = ["gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "iscsi", "rbd"]


@st.composite
def storage_worlds(draw):
    """A filled world, and `q`: a pod to be placed in it."""
    worlds = StorageWorlds(draw(st.randoms(use_true_random=False)))
    worlds.fill()
    return worlds
