"""Device selectors compile and decide as recorded, down to the wording of errors.

The expressions under `data` use every function library; the answers are those of kube-scheduler
1.36.4's own code.
"""

import gzip
import json
from pathlib import Path

from kubesched.config.features import defaults
from kubesched.lab.conformance.comparison import Aspect
from kubesched.lab.conformance.golden import evaluate

RECORDED = Path(__file__).parent / "data" / "selectors.jsonl.gz"
RECORDED_FROM = defaults("1.36")


def test_every_recorded_selector_is_evaluated_as_recorded():
    report = evaluate([RECORDED], RECORDED_FROM)
    assert report.disagreements == []
    assert report.selectors == report.selectors_in_agreement > 500
    assert report.agreement.by_aspect[Aspect.SELECTION].compared > 1000


def test_other_answers_are_noticed(tmp_path):
    with gzip.open(RECORDED, "rt") as lines:
        selectors = [json.loads(line) for line in lines]
    for selector in selectors:
        if "compileError" in selector:
            selector["compileError"] += "."
        else:
            selector["results"][-1] = "another answer"
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(selector) + "\n" for selector in selectors))
    report = evaluate([changed], RECORDED_FROM)
    assert report.selectors > 500
    assert report.selectors_in_agreement == 0


def test_a_limit_counts_selectors_too():
    assert evaluate([RECORDED], RECORDED_FROM, limit=7).selectors == 7
