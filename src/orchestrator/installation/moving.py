"""A repository that was renamed or transferred at its server, or whose server has another address: where it lies now.

What must hold: the new place is the same repository, and has all that this database has done there: it carries the mark
of a start of ours, and its main contains what ours was and every merge. Nothing is moved that is under way: tasks,
pull requests and fences stay as they are, and are found at the new place.

On failure: nothing was changed.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from orchestrator.db import events, repositories, tasks, tickets
from orchestrator.db.database import Database
from orchestrator.db.repositories import Repository
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.forges.forge import Forge
from orchestrator.installation.comparison import Comparison
from orchestrator.repositories import Repositories

HINT = "Is it the right name? A repository that is new to this installation is registered by `orch init`."


class Moving:
    """Points repositories to their new places."""

    def __init__(
        self,
        database: Database,
        places: Repositories,
        comparison: Comparison,
        *,
        wake: Callable[[Iterable[TaskId]], None],
    ) -> None:
        self._database = database
        self._places = places
        self._comparison = comparison
        self._wake = wake

    def move(self, name: str, full_name: str, *, person: str, reason: str = "") -> Repository:
        """Have a repository lie at ``owner/name`` of its server, as this is configured now; tasks that wait for it are
        looked at.

        :raises NotFound: it is not registered.
        :raises ConfigError: it has a local forge, or cannot be worked on there.
        :raises RequestRefused: it is another repository, or another one is registered there.
        :raises OutsideError: the new place cannot be read.
        """
        with self._database.read() as tx:
            known = repositories.get(tx, name)
        with self._places.under(known, full_name) as forge:
            location = forge.fetch_url()
            if location == known.location:
                return known
            self._refuse_another(known, forge)
        with self._database.write() as tx:
            taken = repositories.by_address(tx, known.forge, [location])
            if taken is not None:
                raise RequestRefused(
                    f"{location} is registered as {taken.name} already; nothing was changed."
                )
            if not repositories.move(tx, known, location):
                raise RequestRefused(
                    f"{known.name} was moved by somebody else meanwhile; nothing was changed."
                )
            tickets.moved(tx, known.name, known.location, location)
            told = {"repo": known.name, "from": known.location, "to": location}
            data = {**told, "person": person[:200], "reason": reason[:2000]}
            events.append(tx, EventType.NOTE, Actor.OPERATOR, data=data)
            waiting = [task.id for task in tasks.every_open(tx, known.name)]
        self._places.let_go()
        self._wake(waiting)
        return replace(known, location=location)

    def _refuse_another(self, known: Repository, forge: Forge) -> None:
        """Go on only where a forge shows this very repository.

        :raises RequestRefused: it does not.
        """
        compared = self._comparison.of(known.name, None, at=forge)
        main, was = compared.seen.main, compared.known.main
        why = compared.finding.reason if compared.finding is not None else None
        # Where nothing was ever done, what was read at its registration has to do.
        if compared.seen.mark is None:
            was = was or self._places.last_seen(known, forge.default_branch)
            why = why or ("nothing shows that it is the same repository" if was is None else None)
        if why is None and was is not None and not (main and forge.contains(main, was)):
            why = f"its {forge.default_branch} does not contain {was[:12]}, which {known.name} was at"
        if why is not None:
            raise RequestRefused(
                f"{forge.fetch_url()} is not {known.name} as it was: {why}. Nothing was changed.", hint=HINT
            )
