"""Who may see which path: groups, open paths, the API server's word, and its absence."""

import pytest

from kubesched.app.server.authorization import Authorizer, Decision, ReviewFailed
from kubesched.app.server.users import ANONYMOUS, User
from kubesched.base.errors import ServerError

ALICE = User(name="alice", groups=("dev", "system:authenticated"), extra={"scope": ("a", "b")})


def authorizer(reviews, clock, *paths, **ttl):
    return Authorizer(reviews, always_allow_paths=paths, clock=clock, **ttl)


async def test_masters_may_everything_without_asking(reviews, clock):
    boss = User(name="boss", groups=("system:masters",))
    assert (await authorizer(reviews, clock).decide(boss, "get", "/metrics")).allowed
    assert reviews.asked == []


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/healthz", True),
        ("/healthz/ping", False),
        ("/healthz/", False),
        ("//healthz", False),
        ("/debug/pprof/profile", True),
        ("/debug", False),
        ("/", True),
    ],
)
def test_open_paths_match_to_the_letter_or_by_a_final_star(reviews, clock, path, is_open):
    got = authorizer(reviews, clock, "/healthz", "/debug/*", "/").is_open(path)
    assert got is is_open


async def test_the_api_server_is_told_everything_about_the_user(reviews, clock):
    reviews.allowed.add(("alice", "get", "/metrics"))
    assert await authorizer(reviews, clock).decide(ALICE, "get", "/metrics") == Decision(True)
    (review,) = reviews.asked
    assert review["spec"] == {
        "user": "alice",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scope": ["a", "b"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_answers_are_remembered_by_user_verb_and_path(reviews, clock):
    rules = authorizer(reviews, clock, allowed_ttl_s=10, denied_ttl_s=5)
    reviews.allowed.add(("alice", "get", "/metrics"))
    for _ in range(3):
        assert (await rules.decide(ALICE, "get", "/metrics")).allowed
        assert not (await rules.decide(ALICE, "delete", "/metrics")).allowed
        assert not (await rules.decide(ANONYMOUS, "get", "/metrics")).allowed
    assert len(reviews.asked) == 3
    clock.advance(6)
    await rules.decide(ALICE, "get", "/metrics")
    assert len(reviews.asked) == 3
    await rules.decide(ANONYMOUS, "get", "/metrics")
    assert len(reviews.asked) == 4


async def test_groups_are_part_of_who_a_user_is(reviews, clock):
    rules = authorizer(reviews, clock)
    await rules.decide(ALICE, "get", "/metrics")
    await rules.decide(User(name="alice"), "get", "/metrics")
    assert len(reviews.asked) == 2


async def test_an_api_server_that_fails_is_not_a_yes(reviews, clock):
    reviews.broken = ServerError("down")
    with pytest.raises(ReviewFailed, match="down"):
        await authorizer(reviews, clock).decide(ALICE, "get", "/metrics")


async def test_without_anybody_to_ask_what_is_not_open_is_closed(clock):
    rules = authorizer(None, clock, "/healthz")
    assert not (await rules.decide(ALICE, "get", "/metrics")).allowed
    assert (await rules.decide(ANONYMOUS, "get", "/healthz")).allowed


class Says:
    def __init__(self, answer):
        self.answer = answer

    async def post_raw(self, path, body):
        return self.answer


@pytest.mark.parametrize("answer", [b"", b"[]", b"not json", b'{"status":{"allowed":"yes"}}'])
async def test_an_answer_that_cannot_be_understood_is_not_a_yes(clock, answer):
    with pytest.raises(ReviewFailed):
        await authorizer(Says(answer), clock).decide(ALICE, "get", "/metrics")


async def test_denied_beats_allowed(clock):
    answer = b'{"status":{"allowed":true,"denied":true,"reason":"no"}}'
    got = await authorizer(Says(answer), clock).decide(ALICE, "get", "/metrics")
    assert got == Decision(False, "no")
