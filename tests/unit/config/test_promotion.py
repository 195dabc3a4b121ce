"""The change that promotes a shadow, as a patch of the file."""

from __future__ import annotations

import pytest
import yaml

from kubesched.base.errors import KubeschedError
from kubesched.config.promotion import promotion

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BLOCK = f"""{HEAD}# all profiles
profiles:
- schedulerName: "candidate"  # weights of June
  plugins:
    score:
      enabled: [{{name: ImageLocality, weight: 5}}]
  shadow: {{of: live}}
- schedulerName: live
  percentageOfNodesToScore: 50
- schedulerName: other
parallelism: 4
"""


def applied(text: str, diff: str) -> str:
    """The file after `patch`: one or more hunks over the old lines."""
    old, new, at = text.splitlines(), [], 0
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            begin = int(line.split("-")[1].split(",")[0].split(" ")[0]) - 1
            new += old[at:begin]
            at = begin
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert line[1:] == old[at]
            at += 1
            if line.startswith(" "):
                new.append(line[1:])
    return "\n".join([*new, *old[at:]]) + "\n"


def test_the_candidate_takes_the_live_place_and_comments_stay():
    diff = promotion(BLOCK, "f.yaml")
    assert diff.startswith("--- f.yaml\n+++ f.yaml\n")
    after = applied(BLOCK, diff)
    assert "# all profiles" in after
    assert "- schedulerName: live  # weights of June" in after
    assert yaml.safe_load(after) == {
        **yaml.safe_load(BLOCK),
        "profiles": [
            {
                "schedulerName": "live",
                "plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 5}]}},
            },
            {"schedulerName": "other"},
        ],
    }


@pytest.mark.parametrize(
    "profiles",
    [
        "profiles: [{schedulerName: live}, {schedulerName: c, shadow: {of: live}}]\n",
        "profiles:\n- shadow: {of: live}\n  schedulerName: c\n- schedulerName: live\n",
        "profiles:\n-\n  schedulerName: live\n-\n  schedulerName: c\n  shadow:\n    of: live\n",
    ],
)
def test_other_styles_are_shown_as_plain_yaml(profiles):
    text = HEAD + profiles
    diff = promotion(text, "f.yaml")
    shown = "\n".join(line[1:] for line in diff.splitlines()[3:] if line[:1] in " +")
    assert yaml.safe_load(shown[shown.index("profiles:") :])["profiles"] == [
        {"schedulerName": "live"}
    ]


def test_a_shadow_that_is_not_there_or_not_clear_is_an_error():
    with pytest.raises(KubeschedError, match='no shadow "x"; there are: candidate'):
        promotion(BLOCK, "f.yaml", "x")
    two = BLOCK.replace(
        "- schedulerName: other\n", "- schedulerName: other\n  shadow: {of: live}\n"
    )
    with pytest.raises(KubeschedError, match="not one shadow; there are: candidate, other"):
        promotion(two, "f.yaml")
