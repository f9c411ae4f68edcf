"""M: always a merge commit of main's tip and the branch's own head."""

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.workspace.candidate import CandidateBuilt, Conflict, build_candidate, candidate_message
from tests.fixtures_git import House

MESSAGE = candidate_message(WorkItem("ORCH-1"), "Change it", "n1", "i1", 1)


def test_both_sides_are_in_it(house: House) -> None:
    base = house.main
    head = house.clone.commit_files(base, {"a": b"ours\n"}, "a")
    main = house.outsider_pushes({"b": "theirs\n"})
    house.clone.fetch()
    built = build_candidate(house.clone, main=main, head=head, message=MESSAGE)
    assert isinstance(built, CandidateBuilt)
    assert house.clone.parents(built.sha) == (main, head)
    assert house.clone.tree(built.sha) == built.tree
    assert house.clone.read(built.sha, "a", 10) == b"ours\n"
    assert house.clone.read(built.sha, "b", 10) == b"theirs\n"
    assert house.clone.commit(built.sha).trailers["Orch-Nonce"] == "n1"


def test_where_git_would_only_move_main_forward_it_is_a_merge_commit_all_the_same(house: House) -> None:
    head = house.clone.commit_files(house.main, {"a": b"1"}, "a")
    built = build_candidate(house.clone, main=house.main, head=head, message=MESSAGE)
    assert isinstance(built, CandidateBuilt)
    assert house.clone.parents(built.sha) == (house.main, head)
    assert built.tree == house.clone.tree(head)
    assert built.sha != head


def test_conflicting_files_are_named(house: House) -> None:
    head = house.clone.commit_files(
        house.main, {"src/app.py": b"ours\n", "README.md": None, "ok": b"1", "na\nme": b"ours"}, "a"
    )
    main = house.outsider_pushes({"src/app.py": "theirs\n", "README.md": "kept\n", "na\nme": "theirs"})
    house.clone.fetch()
    built = build_candidate(house.clone, main=main, head=head, message=MESSAGE)
    assert built == Conflict(("README.md", "na\nme", "src/app.py"))


def test_head_and_main_must_be_two_commits(house: House) -> None:
    with pytest.raises(GitError):
        build_candidate(house.clone, main=house.main, head=house.main, message=MESSAGE)
    with pytest.raises(GitError):
        build_candidate(house.clone, main=house.main, head=Sha("1" * 40), message=MESSAGE)
