"""A worker takes the folder at a local forge's path for that forge only by its mark."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.db import installation
from orchestrator.domain.errors import AuthorityUnreachable, OperatorError
from orchestrator.domain.installation import InstallationMark
from orchestrator.installation.comparison import Traces
from orchestrator.installation.within_reach import WithinReach, refuse_a_strange_home
from tests.fixtures_db import REPO, Store
from tests.fixtures_ownership import Logged


@dataclass
class Forges:
    """One forge, as it is seen from here."""

    mark: InstallationMark | None = None
    down: bool = False
    asked: list[str] = field(default_factory=list)

    def of(self, repo: str) -> Any:
        if self.down:
            raise AuthorityUnreachable("There is no such folder.")
        return SimpleNamespace(forge=SimpleNamespace(installation=lambda: self.mark))


def claimed(store: Store, generation: int) -> InstallationMark:
    with store.database.write() as tx:
        mark = InstallationMark(installation.known(tx)[REPO].installation, generation, f"start-{generation}")
        installation.begin(tx, mark.start_id)
        installation.claimed(tx, REPO, mark, None)
    return mark


def test_it_is_told_by_the_mark_that_the_database_remembers(store: Store, logged: Logged) -> None:
    forges = Forges()
    within = WithinReach(store.database, cast(Any, forges))
    assert within([REPO]) == []  # nobody has claimed it yet
    forges.mark = first = claimed(store, 1)
    assert within([REPO]) == [REPO]
    forges.mark = second = claimed(store, 2)
    assert within([REPO]) == [REPO]
    forges.mark = first  # a copy from before
    assert within([REPO]) == within([REPO]) == []
    forges.mark = InstallationMark("another", 9, "start-2")
    assert within([REPO]) == []
    forges.mark = InstallationMark(second.installation, 3, "start-3")  # claimed just now
    assert within([REPO]) == [REPO]
    forges.down = True
    assert within([REPO]) == within([REPO]) == []
    said = [entry for entry in logged if entry["event"] == "no work is taken for a repository"]
    told = ["no orchestrator has claimed it yet", "is not the one that the orchestrators", "no such folder"]
    assert all(one in entry["reason"] for one, entry in zip(told, said, strict=True))  # once for each reason


def test_a_home_with_runs_that_the_database_does_not_know_is_refused() -> None:
    """It is told which folder is meant, and where."""
    at = {"folder": Path("/state/w"), "host": "build-2"}
    refuse_a_strange_home(Traces([], []), **at)  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match="/state/w on build-2, holds a run, S-1-1-1-x, that the database"):
        refuse_a_strange_home(Traces([], ["S-1-1-1-x"]), **at)  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match="holds a start, staging/1-a, that the database"):
        refuse_a_strange_home(Traces(["staging/1-a"], []), **at)  # type: ignore[arg-type]
