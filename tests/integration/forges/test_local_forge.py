"""The local forge as an authority: it refuses a stale actor, and its facts come from git."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from orchestrator.forges.local_pulls import LocalPulls
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git_refs import RefsRefused
from tests.fixtures_git import BRANCH, House, as_it_is


def fence(house: House, task: int = 1) -> str:
    return house.git.text(["cat-file", "blob", f"refs/orch/fence/{task}"], git_dir=house.forge.path)


# -- branches --------------------------------------------------------------------------------------------------


# -- pull requests ---------------------------------------------------------------------------------------------


def test_a_pull_request_lives_and_is_merged_by_fact(house: House, candidate: Candidate) -> None:
    title = "Исправить вход\n\x1b]0;x " + "y" * 300
    opened = house.forge.open_pr(BRANCH, title, "body")
    assert (opened.number, opened.branch, opened.head_sha, opened.state, opened.title) == (
        1, BRANCH, candidate.head_sha, "open", title,
    )  # fmt: skip
    house.forge.merge(candidate, opened.number)
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["merged"]
    house.forge.delete_branch(BRANCH, candidate.head_sha)
    house.forge.close_pr(1)
    (pull,) = house.forge.pull_requests(BRANCH)
    assert (pull.state, pull.head_sha) == ("merged", candidate.head_sha)


def test_a_branch_has_one_open_pull_request_however_often_it_is_asked_for(house: House, head: Sha) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: house.forge.open_pr(BRANCH, "t", "b"), range(8)))
    assert {pull.number for pull in opened} == {1}
    house.forge.close_pr(1)
    house.forge.close_pr(1)
    assert house.forge.open_pr(BRANCH, "t", "b").number == 2
    assert [(pull.number, pull.state) for pull in house.forge.pull_requests(BRANCH)] == [
        (1, "closed"),
        (2, "open"),
    ]
    assert house.forge.pull_requests("another") == []


def test_numbers_are_given_once(house: House) -> None:
    for number in range(8):
        house.push(f"b{number}", house.clone.commit_files(house.main, {"a": str(number).encode()}, "x"))
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda number: house.forge.open_pr(f"b{number}", "t", "b"), range(8)))
    assert sorted(pull.number for pull in opened) == list(range(1, 9))


def test_a_pull_request_follows_its_branch(house: House, head: Sha) -> None:
    house.forge.open_pr(BRANCH, "t", "b")
    later = house.clone.commit_files(head, {"b": b"2"}, "B")
    house.push(BRANCH, later)
    (pull,) = house.forge.pull_requests(BRANCH)
    assert (pull.head_sha, pull.state) == (later, "open")
    house.forge.delete_branch(BRANCH, later)
    assert house.forge.pull_requests(BRANCH)[0].head_sha == later


def test_a_record_that_cannot_be_read_is_unknown_not_absent(house: House, head: Sha) -> None:
    house.forge.open_pr(BRANCH, "t", "b")
    record = house.forge.path / "orch/pulls/1.json"
    for content in ("", "[]", "{", json.dumps({"number": 1})):
        record.write_text(content)
        with pytest.raises(AuthorityUnreachable, match="pull request 1"):
            house.forge.pull_requests(BRANCH)


# -- the merge -------------------------------------------------------------------------------------------------


def test_an_older_main_is_refused_though_update_ref_knows_no_fast_forward(
    house: House, candidate: Candidate
) -> None:
    """An outsider's push is never thrown away, whatever main shows when the actor looks."""
    pushed = house.outsider_pushes({"theirs.txt": "1\n"})
    with pytest.raises(RefsRefused):
        house.forge.merge(candidate, None)
    assert house.main == pushed
    assert house.forge.landed([candidate]) is None
    # A candidate that claims the new main as its first parent is not what was built.
    with pytest.raises(OutsideError, match="is not the merge"):
        house.forge.merge(replace(candidate, base_sha=pushed), None)
    assert house.main == pushed


def test_revoking_can_be_repeated_by_whoever_takes_over(house: House, candidate: Candidate) -> None:
    house.forge.revoke_merge(candidate, "first")
    house.forge.revoke_merge(candidate, "first")
    assert fence(house) == "revoked 1 first"
    house.forge.revoke_merge(candidate, "second")
    assert fence(house) == "revoked 1 first"


def test_the_next_candidate_of_a_task_fences_the_earlier_one_out(house: House, candidate: Candidate) -> None:
    moved = house.outsider_pushes({"theirs.txt": "1\n"})
    house.clone.fetch()
    house.forge.revoke_merge(candidate, "newer")
    second = house.candidate(candidate.head_sha, sequence=2, main=moved)
    house.forge.prepare_merge(second, house.clone.path, BRANCH)
    # A stale revoke or prepare of the first changes nothing for the second.
    house.forge.revoke_merge(candidate, "late")
    with pytest.raises(OutsideError, match="moved on"):
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    assert fence(house) == "candidate 2 fence-1-2"
    house.forge.merge(second, None)
    assert house.forge.landed([candidate, second]) == as_it_is(second)


def test_a_fence_that_somebody_else_wrote_is_not_touched(house: House, candidate: Candidate) -> None:
    oid = house.git.text(["hash-object", "-w", "--stdin"], git_dir=house.forge.path, input=b"something else")
    house.git.run(["update-ref", "refs/orch/fence/1", oid], git_dir=house.forge.path)
    with pytest.raises(OutsideError, match="not written by us"):
        house.forge.revoke_merge(candidate, "newer")
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)


def test_one_of_many_actors_merges(house: House, candidate: Candidate) -> None:
    def act(_: int) -> bool:
        try:
            house.forge.merge(candidate, None)
        except OutsideError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(act, range(8))) == 1
    assert house.main == candidate.sha


@pytest.mark.parametrize("attempt", range(6))
def test_merge_and_revoke_at_once_have_one_outcome(house: House, candidate: Candidate, attempt: int) -> None:
    def merge() -> bool:
        try:
            house.forge.merge(candidate, None)
        except OutsideError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        merged, revoked = pool.submit(merge), pool.submit(house.forge.revoke_merge, candidate, "newer")
        revoked.result()
        assert (house.forge.landed([candidate]) is not None) == merged.result()


@pytest.mark.parametrize("attempt", range(4))
def test_push_and_revoke_at_once_have_one_outcome(house: House, head: Sha, attempt: int) -> None:
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    call = PushCall(TaskId(1), 7)

    def push() -> bool:
        try:
            house.forge.push(house.clone.path, other, BRANCH, head, call=call)
        except OutsideError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        pushed, revoked = pool.submit(push), pool.submit(house.forge.revoke_push, call, "newer")
        revoked.result()
        seen = house.forge.tip(BRANCH)
        assert (house.forge.tip(BRANCH) == other) == pushed.result()
        assert house.forge.tip(BRANCH) == seen  # what was shown after the revoke is final


# -- facts -----------------------------------------------------------------------------------------------------


def test_a_candidate_is_known_by_its_nonce_wherever_it_landed(house: House, head: Sha) -> None:
    """A forge that makes a merge commit of its own keeps the message; the commit is another one."""
    candidate = house.candidate(head)
    message = house.clone.commit(candidate.sha).message
    house.person.git("fetch", "-q", str(house.forge.path), BRANCH)
    house.person.git("merge", "-q", "--no-ff", "-m", message, "FETCH_HEAD")
    house.person.git("push", "-q", str(house.forge.path), "HEAD:main")
    house.outsider_pushes({"later.txt": "1\n"})
    landed = house.forge.landed([candidate])
    assert landed is not None
    own = house.person.git("rev-parse", "HEAD~1").strip()
    assert (landed.candidate, landed.sha, landed.tree) == (candidate, own, candidate.tree)
    assert not house.forge.contains(house.main, candidate.sha)


def test_a_candidate_that_was_merged_onto_a_moved_main_shows_the_tree_that_made(
    house: House, candidate: Candidate
) -> None:
    pushed = house.outsider_pushes({"theirs.txt": "1\n"})
    tree = house.git.text(["rev-parse", f"{pushed}^{{tree}}"], git_dir=house.forge.path)
    who = ["-c", "user.name=Person", "-c", "user.email=person@example.org"]
    made = [*who, "commit-tree", tree, "-p", pushed, "-p", candidate.sha, "-m", "By hand"]
    own = house.git.text(made, git_dir=house.forge.path)
    house.git.run(["update-ref", "refs/heads/main", own], git_dir=house.forge.path)
    house.outsider_pushes({"later.txt": "1\n"})
    landed = house.forge.landed([candidate])
    assert landed is not None
    assert (landed.candidate, landed.sha, landed.tree) == (candidate, own, tree)
    assert tree != candidate.tree


def test_a_nonce_on_a_second_parent_or_inside_a_text_is_no_landing(house: House, head: Sha) -> None:
    candidate = house.candidate(head)
    message = house.clone.commit(candidate.sha).message
    house.person.git("checkout", "-q", "-b", "side")
    house.person.commit(message, {"x": "1"})
    house.person.git("checkout", "-q", "main")
    house.person.git("merge", "-q", "--no-ff", "-m", "Side", "side")
    house.person.commit("Quoted\n\n" + message + "\n\nThe end", {"y": "1"})
    house.person.git("push", "-q", str(house.forge.path), "HEAD:main")
    assert house.forge.landed([candidate]) is None


def test_a_forge_that_is_not_there_is_unreachable(house: House, candidate: Candidate) -> None:
    house.forge.path.rename(house.root / "gone")
    for ask in (
        lambda: house.forge.tip("main"),
        lambda: house.forge.landed([candidate]),
        lambda: house.forge.contains(candidate.sha, candidate.sha),
        lambda: house.forge.pull_requests(BRANCH),
        lambda: house.forge.merge(candidate, None),
        lambda: house.forge.revoke_merge(candidate, "newer"),
        lambda: house.forge.push(house.clone.path, candidate.sha, "x", None),
        lambda: house.forge.close_pr(1),
    ):
        with pytest.raises(AuthorityUnreachable):
            ask()


def test_a_forge_that_goes_away_while_a_pull_request_is_opened_does_not_come_back_empty(house: House) -> None:
    """A folder made in its place would be in the way when the disk is there again."""
    pulls = LocalPulls(house.root / "gone.git" / "orch" / "pulls", SystemClock())
    with pytest.raises(AuthorityUnreachable, match="gone"):
        pulls.open(BRANCH, "t", "b", base=house.main, head=house.main)
    assert not (house.root / "gone.git").exists()


def test_what_was_read_of_other_branches_is_not_read_again(house: House) -> None:
    """With thousands that are merged, a look at one of them costs no more than with one."""
    pulls = LocalPulls(house.forge.path / "orch" / "pulls", SystemClock())
    for branch in ("other", BRANCH):
        pulls.open(branch, "t", "b", base=house.main, head=house.main)
    assert len(pulls.of_branch(BRANCH)) == 1
    (pulls.folder / "1.json").write_text("nonsense")
    assert [record.number for record in pulls.of_branch(BRANCH)] == [2]
    with pytest.raises(AuthorityUnreachable, match=r"pull request 1 cannot be read"):
        pulls.of_branch("other")


def test_a_damaged_forge_is_unreachable(house: House, candidate: Candidate) -> None:
    (house.forge.path / "HEAD").write_text("nonsense")
    with pytest.raises(AuthorityUnreachable):
        house.forge.landed([candidate])


def test_a_damaged_or_missing_main_is_unknown_not_unmerged(house: House, candidate: Candidate) -> None:
    main = house.forge.path / "refs/heads/main"
    value = main.read_text()
    main.write_text("")
    with pytest.raises(AuthorityUnreachable, match="damaged"):
        house.forge.tip("main")
    with pytest.raises(AuthorityUnreachable, match="damaged"):
        house.forge.landed([candidate])
    main.unlink()
    with pytest.raises(AuthorityUnreachable, match="no branch main"):
        house.forge.landed([candidate])
    main.write_text(value)
    assert house.forge.landed([candidate]) is None


def test_an_outsider_neither_sees_nor_moves_what_is_ours(house: House, candidate: Candidate) -> None:
    assert "refs/orch" not in house.person.git("ls-remote", str(house.forge.path))
    house.person.git("push", "-q", str(house.forge.path), "HEAD:refs/orch/fence/1", check=False)
    assert fence(house) == "candidate 1 fence-1-1"
