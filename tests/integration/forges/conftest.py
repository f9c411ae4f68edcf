"""What tests of forges begin with: a branch with one commit, and a candidate of it that the forge knows."""

import pytest

from orchestrator.domain.ids import Sha
from orchestrator.domain.task import Candidate
from tests.fixtures_git import BRANCH, House


@pytest.fixture
def head(house: House) -> Sha:
    sha = house.clone.commit_files(house.main, {"a.txt": b"1\n"}, "A")
    house.push(BRANCH, sha)
    return sha


@pytest.fixture
def candidate(house: House, head: Sha) -> Candidate:
    candidate = house.candidate(head)
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    return candidate
