"""The storage plugins, one pod and one node at a time, over a world of plain JSON.

Answers: None passes, ("Skip",) opts out, (code, reason, ...) rejects, ("Error", text) breaks the
attempt.
"""

import math
from itertools import pairwise

from scalar import labels as node_labels
from scalar.labels import Malformed, matches_selector
from scalar.quantities import parse, round_up

SKIP = ("Skip",)
U, UU, ERROR = "Unschedulable", "UnschedulableAndUnresolvable", "Error"

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
GENERAL = {BETA_ZONE: ZONE, BETA_REGION: REGION}

SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

PLUGINS = {
    "awsElasticBlockStore": (
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
    ),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    "azureDisk": ("kubernetes.io/azure-disk", "disk.csi.azure.com", None),
    "cinder": (
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "portworxVolume": ("kubernetes.io/portworx-volume", "pxd.portworx.com", None),
}
UNLISTED = {
    "azureFile": "kubernetes.io/azure-file",
    "vsphereVolume": "kubernetes.io/vsphere-volume",
}


class Broken(Exception):
    """The attempt fails with this text."""


class World:
    """Everything there is, by kind and key."""

    KINDS = ("claims", "volumes", "classes", "csi_nodes", "drivers", "capacities", "attachments")

    def __init__(self):
        self.nodes = {}
        self.pods = {}
        for kind in self.KINDS:
            setattr(self, kind, {})

    def pods_on(self, node):
        return [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node]


# -- parts -----------------------------------------------------------------------------------------


def annotations(obj):
    return obj["metadata"].get("annotations") or {}


def class_name(obj):
    result = annotations(obj)
    return result[BETA_CLASS] if BETA_CLASS in result else obj["spec"].get("storageClassName") or ""


def is_bound(claim):
    return bool(claim["spec"].get("volumeName")) and COMPLETED in annotations(claim)


def size_of(claim):
    return parse(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))


def capacity_of(volume):
    return parse((volume["spec"].get("capacity") or {}).get("storage", "0"))


def claim_of(pod, volume):
    """(name, ephemeral?) or None."""
    if "persistentVolumeClaim" in volume:
        return volume["persistentVolumeClaim"].get("claimName", ""), False
    if "ephemeral" in volume:
        return f"{pod['metadata']['name']}-{volume['name']}", True
    return None


def volumes_of(pod):
    return pod["spec"].get("volumes") or []


def find_claim(world, pod, name):
    return world.claims.get((pod["metadata"]["namespace"], name))


def owned(pod, claim):
    return any(
        owner.get("controller") and owner["uid"] == pod["metadata"]["uid"]
        for owner in claim["metadata"].get("ownerReferences") or []
    )


def not_owned(pod, claim):
    theirs, mine = claim["metadata"], pod["metadata"]
    return (
        f"PVC {theirs['namespace']}/{theirs['name']} was not created for pod"
        f" {mine['namespace']}/{mine['name']} (pod is not owner)"
    )


def labels_of(obj):
    return obj["metadata"].get("labels") or {}


# -- migration -------------------------------------------------------------------------------------


def in_tree(spec):
    return next((field for field in (*PLUGINS, *UNLISTED) if field in spec), None)


def handle_of(field, source, labels):
    if field == "awsElasticBlockStore":
        volume_id = source["volumeID"]
        if not volume_id.startswith("aws://"):
            return volume_id
        handle = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
        if not handle.startswith("vol-") or "/" in handle:
            raise Broken(
                "failed to translate Kubernetes ID to EBS Volume ID"
                f" Invalid format for AWS volume ({volume_id})"
            )
        return handle
    if field == "gcePersistentDisk":
        zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split("__")
        if len(zones) == 1:
            where = f"zones/{zones[0] or 'UNSPECIFIED'}"
        else:
            regions = set()
            for zone in zones:
                if zone.count("-") != 2:
                    raise Broken(
                        "failed to get region from zones: zone in unexpected format, expected:"
                        f" {{locale}}-{{region}}-{{zone}}, got: {zone}"
                    )
                regions.add(zone.rpartition("-")[0])
            if len(regions) > 1:
                shown = " ".join(f"{region}:{{}}" for region in sorted(regions))
                raise Broken(
                    "failed to get region from zones: multiple or no regions gotten from zones,"
                    f" got: map[{shown}]"
                )
            where = f"regions/{regions.pop()}"
        return f"projects/UNSPECIFIED/{where}/disks/{source['pdName']}"
    if field == "azureDisk":
        if source.get("kind") is not None and source["kind"].lower() != "managed":
            raise Broken(f"kind({source['kind']}) is not supported in csi migration")
        return source["diskURI"]
    return source["volumeID"]


def terms_of(volume):
    """The terms of a volume's affinity; None when it has none."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return None if required is None else required.get("nodeSelectorTerms") or []


def translated_terms(volume):
    field = in_tree(volume["spec"])
    labels = labels_of(volume)
    handle_of(field, volume["spec"][field], labels)
    terms, key = terms_of(volume), PLUGINS[field][2]
    if key is None:
        return terms
    keys = {e["key"] for term in terms or [] for e in term.get("matchExpressions") or []}
    generation = ZONE
    for known in (keys, labels):
        if ZONE in known or BETA_ZONE in known:
            generation = ZONE if ZONE in known else BETA_ZONE
            break
    zoned = any(
        e["key"] == generation and e.get("values")
        for term in terms or []
        for e in term.get("matchExpressions") or []
    )
    renamed = {}
    extra = []
    if zoned:
        renamed[generation] = key
    elif generation in labels:
        zones = sorted({zone.strip() for zone in labels[generation].split("__")} - {""})
        if zones:
            extra = [{"key": key, "operator": "In", "values": zones}]
            terms = terms or [{}]
    if generation == BETA_ZONE and any(
        e["key"] == BETA_REGION and e.get("values")
        for term in terms or []
        for e in term.get("matchExpressions") or []
    ):
        renamed[BETA_REGION] = REGION
    if terms is None:
        return None
    return [
        {
            **term,
            "matchExpressions": [
                {**e, "key": renamed.get(e["key"], e["key"])}
                for e in term.get("matchExpressions") or []
            ]
            + extra,
        }
        for term in terms
    ]


def handed_over(world, node, field):
    csi_node = world.csi_nodes.get(node)
    if csi_node is None or field not in PLUGINS:
        return False
    return PLUGINS[field][0] in annotations(csi_node).get(MIGRATED, "").split(",")


def reaches(terms, node):
    """Labels only: conditions on fields are not looked at."""
    if terms is None:
        return True
    for term in terms:
        expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
        if not expressions and not fields:
            continue
        try:
            for field in fields:
                if field["operator"] not in ("In", "NotIn") or len(field.get("values") or []) != 1:
                    raise Malformed
            bare = {"matchExpressions": expressions}
            if not expressions or node_labels.matches_node_term(bare, node):
                return True
        except Malformed:
            continue
    return False


# -- VolumeZone ------------------------------------------------------------------------------------


def zone_pre_filter(world, pod):
    """A list of (key, values), or an answer."""
    results = []
    for volume in volumes_of(pod):
        if "persistentVolumeClaim" not in volume:
            continue
        name = volume["persistentVolumeClaim"].get("claimName", "")
        if not name:
            return UU, "PersistentVolumeClaim had no name"
        claim = find_claim(world, pod, name)
        if claim is None:
            return UU, f'persistentvolumeclaim "{name}" not found'
        volume_name = claim["spec"].get("volumeName")
        if not volume_name:
            wanted = class_name(claim)
            if not wanted:
                return UU, "PersistentVolumeClaim had no pv name and storageClass name"
            if wanted not in world.classes:
                return UU, f'storageclass.storage.k8s.io "{wanted}" not found'
            mode = world.classes[wanted].get("volumeBindingMode")
            if mode is None:
                return UU, f'VolumeBindingMode not set for StorageClass "{wanted}"'
            if mode != "WaitForFirstConsumer":
                return UU, "PersistentVolume had no name"
            continue
        if volume_name not in world.volumes:
            return UU, f'persistentvolume "{volume_name}" not found'
        labels = labels_of(world.volumes[volume_name])
        for key in (BETA_ZONE, BETA_REGION, ZONE, REGION):
            if key in labels:
                values = [part.strip() for part in labels[key].split("__")]
                if "" not in values:
                    results.append((key, values))
    return results or SKIP


def zone_filter(world, pod, node, requirements):
    labels = labels_of(world.nodes[node])
    if not any(key in labels for key in (BETA_ZONE, BETA_REGION, ZONE, REGION)):
        return None
    for key, values in requirements:
        result = labels.get(key, labels.get(GENERAL.get(key, key)))
        if result not in values:
            return UU, "node(s) had no available volume zone"
    return None


# -- VolumeRestrictions ----------------------------------------------------------------------------

DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


def restrictions_pre_filter(world, pod):
    """The number of exclusive claims in use, or an answer."""
    exclusive = set()
    for volume in volumes_of(pod):
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"].get("claimName", "")
            claim = find_claim(world, pod, name)
            if claim is None:
                return UU, f'persistentvolumeclaim "{name}" not found'
            if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or []):
                exclusive.add(name)
    namespace = pod["metadata"]["namespace"]
    used = {
        volume["persistentVolumeClaim"].get("claimName", "")
        for other in world.pods.values()
        if other["spec"]["nodeName"] in world.nodes and other["metadata"]["namespace"] == namespace
        for volume in volumes_of(other)
        if "persistentVolumeClaim" in volume
    }
    conflicts = len(exclusive & used)
    if not conflicts and not any(disk in volume for volume in volumes_of(pod) for disk in DISKS):
        return SKIP
    return conflicts


def restrictions_filter(world, pod, node, conflicts):
    for mine in volumes_of(pod):
        for other in world.pods_on(node):
            for theirs in volumes_of(other):
                if same_disk(mine, theirs):
                    return U, "node(s) had no available disk"
    if conflicts > 0:
        return (
            U,
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
            " already in-use by another pod",
        )
    return None


def same_disk(a, b):
    for kind, identity in (
        ("gcePersistentDisk", ("pdName",)),
        ("iscsi", ("iqn",)),
        ("rbd", ("pool", "image")),
        ("awsElasticBlockStore", ("volumeID",)),
    ):
        if kind in a and kind in b:
            mine, theirs = a[kind], b[kind]
            same = all(mine.get(field) == theirs.get(field) for field in identity)
            if kind == "rbd":
                same = same and bool(
                    set(mine.get("monitors", [])) & set(theirs.get("monitors", []))
                )
            readers = mine.get("readOnly") and theirs.get("readOnly")
            if same and (kind == "awsElasticBlockStore" or not readers):
                return True
    return False


# -- NodeVolumeLimits ------------------------------------------------------------------------------


def limits_pre_filter(world, pod):
    for volume in volumes_of(pod):
        if claim_of(pod, volume) is not None or in_tree(volume) is not None:
            return None
    return SKIP


def limits_filter(world, pod, node):
    csi_node = world.csi_nodes.get(node)
    try:
        new = attachable(world, pod, csi_node, is_new=True)
        if isinstance(new, tuple):
            return new
        drivers = [] if csi_node is None else csi_node["spec"].get("drivers") or []
        limits = {
            d["name"]: d["allocatable"]["count"]
            for d in drivers
            if (d.get("allocatable") or {}).get("count") is not None
        }
        if not new or not limits:
            return None
        used = {}
        for other in world.pods_on(node):
            used.update(attachable(world, other, csi_node, is_new=False))
    except Broken as problem:
        return ERROR, str(problem)
    held = dict(used)
    for attachment in world.attachments.values():
        spec = attachment["spec"]
        volume = world.volumes.get(spec["source"].get("persistentVolumeName"))
        if spec["nodeName"] == node and spec["attacher"] and volume and "csi" in volume["spec"]:
            name = f"{spec['attacher']}/{volume['spec']['csi']['volumeHandle']}"
            held.setdefault(name, spec["attacher"])
    new = {name: driver for name, driver in new.items() if name not in used}
    for driver in new.values():
        wanted = list(new.values()).count(driver) + list(held.values()).count(driver)
        if driver in limits and wanted > limits[driver]:
            return U, "node(s) exceed max volume count"
    return None


def attachable(world, pod, csi_node, *, is_new):
    """Unique name -> driver, or an answer."""
    results = {}
    for volume in volumes_of(pod):
        use = claim_of(pod, volume)
        if use is None:
            field = in_tree(volume)
            if field in PLUGINS and csi_node is not None:
                try:
                    handle = handle_of(field, volume[field], {})
                except Broken as problem:
                    text = f"converting volume({volume['name']}) from inline to csi: {problem}"
                    raise Broken(text) from None
                results[f"{PLUGINS[field][1]}/{handle}"] = PLUGINS[field][1]
            continue
        name, ephemeral = use
        if not name:
            raise Broken("PersistentVolumeClaim had no name")
        claim = find_claim(world, pod, name)
        if claim is None:
            if not is_new:
                continue
            where = f"{pod['metadata']['namespace']}/{name}"
            return UU, f'looking up PVC {where}: persistentvolumeclaim "{name}" not found'
        if ephemeral and not owned(pod, claim):
            raise Broken(not_owned(pod, claim))
        driver, handle = driver_of(world, claim, csi_node)
        if driver and handle:
            results[f"{driver}/{handle}"] = driver
    return results


def driver_of(world, claim, csi_node):
    volume = world.volumes.get(claim["spec"].get("volumeName"))
    if volume is not None:
        if "csi" in volume["spec"]:
            return volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
        field = in_tree(volume["spec"])
        if field not in PLUGINS or csi_node is None:
            return "", ""
        try:
            return PLUGINS[field][1], handle_of(field, volume["spec"][field], labels_of(volume))
        except Broken:
            return "", ""
    storage_class = world.classes.get(class_name(claim))
    if not class_name(claim) or storage_class is None:
        return "", ""
    handle = f"pending-{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    provisioner = storage_class["provisioner"]
    if provisioner in UNLISTED.values():
        return "", ""
    for plugin, driver, _ in PLUGINS.values():
        if plugin == provisioner:
            return (driver, handle) if csi_node is not None else ("", "")
    return provisioner, handle


# -- VolumeBinding ---------------------------------------------------------------------------------


def binding_pre_filter(world, pod):
    """(bound claims, delayed claims) as lists, or an answer."""
    used = [use for volume in volumes_of(pod) if (use := claim_of(pod, volume)) is not None]
    if not used:
        return SKIP
    for name, ephemeral in used:
        claim = find_claim(world, pod, name)
        if claim is None:
            if ephemeral:
                return UU, (
                    "waiting for ephemeral volume controller to create the"
                    f' persistentvolumeclaim "{name}"'
                )
            return UU, f'persistentvolumeclaim "{name}" not found'
        if claim["status"]["phase"] == "Lost":
            lost = claim["spec"].get("volumeName", "")
            return (
                UU,
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"',
            )
        if "deletionTimestamp" in claim["metadata"]:
            return UU, f'persistentvolumeclaim "{name}" is being deleted'
        if ephemeral and not owned(pod, claim):
            return UU, not_owned(pod, claim)
    bound, delayed, immediate = [], [], []
    for name, _ in used:
        claim = find_claim(world, pod, name)
        if is_bound(claim):
            bound.append(claim)
            continue
        storage_class = world.classes.get(class_name(claim)) if class_name(claim) else None
        if storage_class is not None and "volumeBindingMode" not in storage_class:
            return ERROR, f'VolumeBindingMode not set for StorageClass "{class_name(claim)}"'
        waits = (
            storage_class is not None
            and storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
            and not claim["spec"].get("volumeName")
        )
        (delayed if waits else immediate).append(claim)
    if immediate:
        return UU, "pod has unbound immediate PersistentVolumeClaims"
    return [bound, delayed]


def binding_filter(world, pod, node, claims):
    try:
        reasons, _, _ = find_volumes(world, node, *claims)
    except Broken as problem:
        return ERROR, str(problem)
    return (UU, *reasons) if reasons else None


def find_volumes(world, node_name, bound, delayed):
    """(reasons, [(claim, volume)], [(claim, capacity or None)])."""
    node = world.nodes[node_name]
    conflict = missing = False
    for claim in bound:
        volume = world.volumes.get(claim["spec"]["volumeName"])
        if volume is None:
            missing = True
            break
        terms, field = terms_of(volume), in_tree(volume["spec"])
        if field is not None and handed_over(world, node_name, field):
            try:
                terms = translated_terms(volume)
            except Broken as problem:
                raise Broken(f"could not translate pv: {problem}") from None
        if not reaches(terms, node):
            conflict = True
            break
    matched, provisioned, problem = serve(world, node, delayed)
    reasons = [
        reason
        for holds, reason in (
            (conflict, "node(s) didn't match PersistentVolume's node affinity"),
            (problem == "bind", "node(s) didn't find available persistent volumes to bind"),
            (problem == "space", "node(s) did not have enough free storage"),
            (
                missing,
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            ),
        )
        if holds
    ]
    return reasons, matched, provisioned


def serve(world, node, delayed):
    to_provision, to_match = [], []
    for claim in delayed:
        selected = annotations(claim).get(SELECTED)
        if selected is None:
            to_match.append(claim)
        elif selected != node["metadata"]["name"]:
            return [], [], "bind"
        else:
            to_provision.append(claim)
    matched = []
    for claim in sorted(to_match, key=size_of):
        taken = [volume["metadata"]["name"] for _, volume in matched]
        volume = match(world, node, claim, taken)
        if volume is None:
            to_provision.append(claim)
        else:
            matched.append((claim, volume))
    provisioned = []
    for claim in to_provision:
        name = class_name(claim)
        storage_class = world.classes[name]
        if storage_class["provisioner"] in ("", "kubernetes.io/no-provisioner"):
            return matched, provisioned, "bind"
        if not allowed(storage_class.get("allowedTopologies"), labels_of(node)):
            return matched, provisioned, "bind"
        result = None
        driver = world.drivers.get(storage_class["provisioner"])
        requests = (claim["spec"].get("resources") or {}).get("requests") or {}
        if "storage" in requests and driver is not None and driver["spec"].get("storageCapacity"):
            result = roomy(world, node, name, round_up(parse(requests["storage"])))
            if result is None:
                return matched, provisioned, "space"
        provisioned.append((claim, result))
    return matched, provisioned, None


def match(world, node, claim, taken):
    spec = claim["spec"]
    selector = spec.get("selector")
    if selector is not None:
        for expression in selector.get("matchExpressions") or []:
            if expression["operator"] not in ("In", "NotIn", "Exists", "DoesNotExist"):
                raise Broken(
                    "error creating internal label selector for claim:"
                    f" {claim['metadata']['namespace']}/{claim['metadata']['name']}:"
                    f' "{expression["operator"]}" is not a valid label selector operator'
                )
    best = None
    # Which of equal volumes is taken is not specified; ours is the first by name.
    candidates = sorted(world.volumes.items(), key=lambda item: (capacity_of(item[1]), item[0]))
    for name, volume in candidates:
        if class_name(volume) != class_name(claim) or name in taken:
            continue
        reference = volume["spec"].get("claimRef")
        mine = reference is not None and (
            reference["name"] == claim["metadata"]["name"]
            and reference["namespace"] == claim["metadata"]["namespace"]
            and reference.get("uid", "") in ("", claim["metadata"]["uid"])
        )
        if reference is not None and not mine:
            continue
        capacity = capacity_of(volume)
        if capacity < size_of(claim):
            continue
        if volume["spec"].get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem"):
            continue
        attributes = "volumeAttributesClassName"
        if (volume["spec"].get(attributes) or "") != (spec.get(attributes) or ""):
            continue
        if "deletionTimestamp" in volume["metadata"]:
            continue
        near = reaches(terms_of(volume), node)
        if mine:
            return volume if near else None
        if volume["status"]["phase"] != "Available" or not near:
            continue
        if selector is not None and not matches_selector(selector, labels_of(volume)):
            continue
        if not set(spec.get("accessModes") or []) <= set(volume["spec"].get("accessModes") or []):
            continue
        if best is None or capacity < best[0]:
            best = (capacity, volume)
    return None if best is None else best[1]


def allowed(terms, labels):
    if not terms:
        return True
    return any(
        term.get("matchLabelExpressions")
        and all(
            labels.get(e["key"]) in (e.get("values") or []) for e in term["matchLabelExpressions"]
        )
        for term in terms
    )


def roomy(world, node, name, wanted):
    for _, capacity in sorted(world.capacities.items()):
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        selector = capacity.get("nodeTopology")
        if capacity["storageClassName"] != name or limit is None or selector is None:
            continue
        valid = all(
            e["operator"] in ("In", "NotIn", "Exists", "DoesNotExist")
            for e in selector.get("matchExpressions") or []
        )
        if (
            valid
            and round_up(parse(limit)) >= wanted
            and matches_selector(selector, labels_of(node))
        ):
            return capacity
    return None


def binding_score(world, node, claims, shape):
    reasons, matched, provisioned = find_volumes(world, node, *claims)
    if reasons:
        return None
    amounts = {}
    if matched:
        for claim, volume in matched:
            name = volume["spec"].get("storageClassName", "")
            requested, capacity = amounts.get(name, (0, 0))
            amounts[name] = (
                requested + round_up(size_of(claim)),
                capacity + round_up(capacity_of(volume)),
            )
    else:
        for claim, result in provisioned:
            if result is not None:
                name = claim["spec"].get("storageClassName") or class_name(claim)
                requested, _ = amounts.get(name, (0, 0))
                capacity = round_up(parse(result.get("capacity", "0")))
                amounts[name] = requested + round_up(size_of(claim)), capacity
    if not amounts:
        return 0
    total = 0
    for requested, capacity in amounts.values():
        at = 100 if capacity == 0 or requested > capacity else requested * 100 // capacity
        total += on_shape(shape, at)
    return math.floor(total / len(amounts) + 0.5)


def on_shape(shape, at):
    if at <= shape[0][0]:
        return shape[0][1] * 10
    for (left, low), (right, high) in pairwise(shape):
        if at <= right:
            low, high = low * 10, high * 10
            step = (high - low) * (at - left)
            quotient = abs(step) // (right - left)
            return low + (quotient if step >= 0 else -quotient)
    return shape[-1][1] * 10
