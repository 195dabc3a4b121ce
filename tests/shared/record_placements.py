"""Writes `tests/conformance/data/placements.jsonl.gz`: generated clusters with the answers of the
scalar twins.

Run from the project's root: python tests/shared/record_placements.py
"""

import gzip
import json
from pathlib import Path

import generated_placements
from scalar.model import Model
from scalar.scheduler import answer

from kubesched.config.features import defaults

DATA = Path(__file__).parents[1] / "conformance" / "data" / "placements.jsonl.gz"
RECORDED_FROM = defaults("1.36")
SEED = 1
CLUSTERS = 60


def answered(placement, gates=RECORDED_FROM):
    """The placement with an answer to every pending pod."""
    model = Model(placement["namespaces"], gates)
    for node in placement["nodes"]:
        model.set_node(node)
    for pod in placement["pods"]:
        model.add_pod(pod)
    model.refresh()
    for pending in placement["pending"]:
        pending["expect"] = answer(model, pending["pod"])
    return placement


def main():
    lines = [
        json.dumps(answered(placement))
        for placement in generated_placements.placements(SEED, CLUSTERS)
    ]
    DATA.parent.mkdir(exist_ok=True)
    # Without name and time the same clusters give the same bytes.
    with DATA.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
