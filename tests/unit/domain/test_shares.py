"""Caps by name, what counts for them, and how a full one is told."""

from orchestrator.domain.shares import NO_CAPS, Lane, Share, Shares, taken

CHECK = Lane("shop", "development", "")
CLAUDE, CODEX = Lane("shop", "development", "claude"), Lane("blog", "review", "codex")


def test_nothing_is_limited_by_default() -> None:
    assert NO_CAPS.limits(["shop"]) == {}


def test_a_star_is_each_that_is_not_named() -> None:
    shares = Shares(by_repo=(("*", 2), ("shop", 5)), by_kind=(("*", 1), ("claude", 3)))
    assert shares.limits(["shop", "blog"]) == {
        "repo/shop": 5,
        "repo/blog": 2,
        "agent/claude": 3,
        "agent/codex": 1,
        "agent/command": 1,
        "agent/scripted": 1,
    }


def test_a_star_for_stages_is_each_that_has_agents() -> None:
    assert set(Shares(by_stage=(("*", 1),)).limits([])) == {
        "stage/analysis", "stage/architecture", "stage/development", "stage/review", "stage/testing",
        "stage/deploy-staging",
    }  # fmt: skip


def test_an_agent_counts_for_each_of_its_shares_and_a_check_for_none() -> None:
    limits = Shares(4, (("shop", 3),), (("review", 1),), (("claude", 2),)).limits(["shop"])
    used = taken(limits, {CLAUDE: 2, CODEX: 1, CHECK: 7})
    assert {name: (share.running, share.limit, share.full) for name, share in used.items()} == {
        "all": (3, 4, False),
        "repo/shop": (2, 3, False),
        "stage/review": (1, 1, True),
        "agent/claude": (2, 2, True),
    }


def test_a_share_says_its_setting() -> None:
    said = [str(Share(name, 2, 2)) for name in ("all", "repo/shop", "stage/review", "agent/claude")]
    assert said == [
        "2 of 2 agents run (ORCH_MAX_AGENTS_TOTAL)",
        "2 of 2 agents of repository shop run (ORCH_MAX_AGENTS_BY_REPO)",
        "2 of 2 agents in stage review run (ORCH_MAX_AGENTS_BY_STAGE)",
        "2 of 2 agents of kind claude run (ORCH_MAX_AGENTS_BY_KIND)",
    ]
