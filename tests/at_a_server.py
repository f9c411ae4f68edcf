"""An installation whose repository lies at a played server, and what its git and its journal of calls show."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.played.common.faults import How
from orchestrator.repositories import Elsewhere
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_pipeline import Build, Pipeline


@dataclass(frozen=True)
class Delivery:
    """A line of tickets, the server, and the repository there."""

    line: Pipeline
    server: Any
    there: Any

    @property
    def git(self) -> Hand:
        return Hand(self.there.path)

    @property
    def main(self) -> str:
        return self.git.git("rev-parse", "main")

    def merges(self) -> list[str]:
        return self.git.git("log", "--first-parent", "--merges", "--format=%H", "main").split()

    def asked(self, method: str, pattern: str) -> list[int]:
        """How each of these calls was answered."""
        return [call.status for call in self.server.calls(method, pattern)]

    def effects(self, item: str) -> Mapping[EffectName, list[EffectState]]:
        found: dict[EffectName, list[EffectState]] = {}
        for effect in self.line.story(item).effects:
            found.setdefault(effect.name, []).append(effect.state)
        return found


@contextmanager
def delivering(pipeline: Build, server: Any, forge: str) -> Iterator[Callable[..., Delivery]]:
    """Builds installations at a server of this kind, and stops them before it ends."""
    made: list[Pipeline] = []
    with server:

        def build(**more: Any) -> Delivery:
            known = {
                f"ORCH_{forge.upper()}_URL": server.url,
                f"ORCH_{forge.upper()}_TOKEN": server.token,
                "ORCH_FORGE_SETTLE_S": "0",
            }
            line = pipeline(settings={**known, **more.pop("settings", {})}, **more)
            made.append(line)
            there = repository_at(server, line.person)
            line.open().register_elsewhere(Elsewhere(forge, NAME), name=line.repo, prefix="S")
            return Delivery(line, server, there)

        yield build
        for line in made:
            line.stop()


def lose_the_answers(server: Any) -> None:
    """Of the first call of every kind that has an effect."""
    for path in (r"/pulls$", r"/merge$", r"/git-receive-pack$"):
        for method in ("POST", "PUT"):
            server.fail(method, path, How.LOST)
