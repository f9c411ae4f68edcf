"""What others say at a forge, and whether it lets a change pass."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.gate import Verdict
from orchestrator.domain.ids import Sha
from orchestrator.domain.others import CheckState, ForgeCheck, ForgeReview, Remark, ReviewState, Said
from orchestrator.rules.others import judge_checks, judge_reviews, objections, other_names

G, OWN, OLD = Sha("a" * 40), "b" * 40, "c" * 40
SAID = Said(G, frozenset({G, OWN}), pull_request="https://git.example/acme/shop/pulls/1")
PASSED, FAILED, PENDING, STOPPED = CheckState
APPROVED, CHANGES, WITHDRAWN = ReviewState


def check(name: str, state: CheckState, order: int = 1, source: str = "status") -> ForgeCheck:
    return ForgeCheck(name, source, order, state, state.value, "Words", "https://ci.example/1")


def review(
    number: int, person: str, state: ReviewState, commit: str = G, *, counts: bool = True
) -> ForgeReview:
    return ForgeReview(number, person, state, commit, counts, f"Words of {person}", "https://git.example/r")


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([], Verdict.WAIT),
        ([check("Build", PASSED)], Verdict.WAIT),
        ([check("build", PENDING)], Verdict.WAIT),
        ([check("build", STOPPED)], Verdict.WAIT),
        ([check("build", PASSED)], Verdict.PASS),
        ([check("build", FAILED)], Verdict.FAIL),
        ([check("build", FAILED), check("build", PASSED, 2)], Verdict.PASS),
        ([check("build", FAILED, 3), check("build", PASSED, 2)], Verdict.FAIL),
        ([check("build", PASSED, 2), check("build", PENDING, 3)], Verdict.WAIT),
        ([check("build", PASSED, 9), check("build", FAILED, 1, "app 7")], Verdict.FAIL),
        ([check("build", PASSED, 9), check("build", PENDING, 1, "app 7")], Verdict.WAIT),
        ([check("build", PASSED), check("lint", FAILED)], Verdict.PASS),
    ],
    ids=[
        "nothing",
        "another spelling",
        "pending",
        "cancelled",
        "passed",
        "failed",
        "run again, and passed",
        "run again, and failed",
        "run again, and not done",
        "two sources, one failed",
        "two sources, one not done",
        "another failed, which nobody asked for",
    ],
)
def test_of_a_named_check_the_newest_word_counts(checks: list[ForgeCheck], verdict: Verdict) -> None:
    assert judge_checks(["build"], replace(SAID, checks=tuple(checks))).verdict is verdict


def test_what_failed_is_told_with_its_words_and_one_failure_is_enough() -> None:
    said = replace(SAID, checks=(check("build", FAILED), check("lint", PENDING)))
    result = judge_checks(["build", "lint"], said)
    assert result.verdict is Verdict.FAIL
    assert result.brief().splitlines()[1:] == [
        f'- The check "build" says failed about {G}. (https://ci.example/1) Words'
    ]


def test_what_a_failed_check_says_of_places_is_told() -> None:
    remarks = {7: (Remark("assert 1 == 2", "src/a.py", 3),), 8: (Remark("Not asked for", "src/b.py", 1),)}
    said = replace(SAID, checks=(check("build", FAILED, 7), check("lint", FAILED, 8)), remarks=remarks)
    told = judge_checks(["build"], said).brief()
    assert told.endswith("\n- src/a.py:3: assert 1 == 2")
    assert "src/b.py" not in told


def test_what_is_waited_for_is_named() -> None:
    result = judge_checks(["build", "lint"], replace(SAID, checks=(check("lint", PENDING),)))
    assert result.reason == f"waits for checks at the forge on {G[:12]}: build (not there), lint (pending)"


def test_a_name_that_is_misspelled_is_guessed() -> None:
    said = replace(SAID, checks=(check("Build", PASSED), check("deploy", PASSED)))
    assert other_names(["build"], said) == "The forge shows: Build, deploy. Did you mean Build?"
    assert "no other check" in other_names(["build"], SAID)
    assert other_names(["Build"], said) == ""


@pytest.mark.parametrize(
    ("reviews", "verdict"),
    [
        ([], Verdict.WAIT),
        ([review(1, "ann", APPROVED)], Verdict.PASS),
        ([review(1, "ann", APPROVED, OWN)], Verdict.PASS),
        ([review(1, "ann", APPROVED, OLD)], Verdict.WAIT),
        ([review(1, "ann", APPROVED, "")], Verdict.WAIT),
        ([review(1, "ann", APPROVED, counts=False)], Verdict.WAIT),
        ([review(1, "ann", WITHDRAWN)], Verdict.WAIT),
        ([review(1, "ann", APPROVED), review(2, "ann", WITHDRAWN)], Verdict.WAIT),
        ([review(2, "ann", APPROVED), review(1, "ann", CHANGES)], Verdict.PASS),
        ([review(1, "ann", APPROVED), review(2, "ann", CHANGES)], Verdict.FAIL),
        ([review(1, "ann", APPROVED), review(2, "bob", CHANGES)], Verdict.FAIL),
        ([review(1, "ann", APPROVED), review(2, "bob", CHANGES, OLD)], Verdict.FAIL),
        ([review(1, "ann", APPROVED), review(2, "bob", CHANGES, counts=False)], Verdict.PASS),
        ([review(1, "ann", APPROVED), review(7, "bob", CHANGES, OLD)], Verdict.PASS),
    ],
    ids=[
        "nobody",
        "approved",
        "approved with our documents on top",
        "approved before",
        "approved nothing",
        "may not approve",
        "dismissed",
        "approved, then dismissed",
        "changed their mind",
        "changed their mind again",
        "two people",
        "asked for changes before, unheard",
        "whoever may not approve may not stop it",
        "asked for changes before, and was heard",
    ],
)
def test_of_each_person_the_newest_word_counts(reviews: list[ForgeReview], verdict: Verdict) -> None:
    said = replace(SAID, reviews=tuple(reviews), dealt_with=frozenset({7}))
    assert judge_reviews(1, said).verdict is verdict


def test_one_person_approves_once() -> None:
    said = replace(SAID, reviews=(review(1, "ann", APPROVED), review(2, "ann", APPROVED)))
    result = judge_reviews(2, said)
    assert result.verdict is Verdict.WAIT
    assert (
        result.reason
        == f"waits for 2 approvals (1 given) of {G[:12]} at https://git.example/acme/shop/pulls/1"
    )


def test_changes_come_with_what_was_said_of_each_place() -> None:
    remarks = {1: (Remark("Call it OLD\x1b[2J\nplease", "src/a.py", 7),)}
    said = replace(SAID, reviews=(review(1, "ann", CHANGES),), remarks=remarks)
    assert [one.number for one in objections(said)] == [1]
    result = judge_reviews(1, said)
    assert result.brief() == (
        "Changes were requested by ann.\n- ann asks for changes: Words of ann (https://git.example/r)\n"
        "- src/a.py:7: Call it OLD [2J\nplease"
    )


@given(st.text(), st.text(), st.text())
def test_whatever_they_write_is_bounded_and_draws_nothing(name: str, words: str, url: str) -> None:
    odd = ForgeCheck("build", "status", 1, FAILED, name * 50, words * 2000, url * 200)
    said = replace(
        SAID,
        checks=(odd,),
        reviews=(ForgeReview(1, name or "x", CHANGES, words, True, words * 2000, url),),
    )
    for result in (judge_checks(["build"], said), judge_reviews(1, said)):
        told = result.brief()
        assert len(told) < 6_000
        assert all(line.isprintable() for line in told.split("\n"))
