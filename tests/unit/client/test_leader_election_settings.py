"""Leader election settings that cannot work are refused before anything is started, in client-go's
words.
"""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.client.leader_election import LeaderElectionSettings


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lease_duration_s": 10.0}, "leaseDuration must be greater than renewDeadline"),
        ({"retry_period_s": 9.0}, "renewDeadline must be greater than retryPeriod*JitterFactor"),
        (
            {"lease_duration_s": 0.0, "renew_deadline_s": -1.0, "retry_period_s": -2.0},
            "leaseDuration must be greater than zero",
        ),
        (
            {"lease_duration_s": 1.0, "renew_deadline_s": 0.0, "retry_period_s": -1.0},
            "renewDeadline must be greater than zero",
        ),
        ({"retry_period_s": 0.0}, "retryPeriod must be greater than zero"),
        ({"identity": ""}, "Lock identity is empty"),
        (
            {"lease_duration_s": 0.9, "renew_deadline_s": 0.5, "retry_period_s": 0.1},
            "leaseDuration must be at least one second",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_in_upstream_words(changes, complaint):
    with pytest.raises(ConfigError) as caught:
        LeaderElectionSettings(**{"identity": "a", **changes}).check()
    assert str(caught.value) == complaint


def test_requests_have_half_the_renewal_deadline_but_a_second_at_least():
    assert LeaderElectionSettings(identity="a").call_deadline_s == 5.0
    assert LeaderElectionSettings(identity="a", renew_deadline_s=1.0).call_deadline_s == 1.0
