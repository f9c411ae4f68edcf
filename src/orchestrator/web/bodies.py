"""Request bodies: JSON of a known shape, read as hostile data.

Deep nesting, huge numbers, NaN, broken UTF-8 and lone surrogates are bad input (400), never a crash.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Self, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.domain.effect import EffectState
from orchestrator.operations.connections import OpenTasks
from orchestrator.operations.deciding import BODY_LIMIT, LABEL_LIMIT, SUBJECT, TITLE_LIMIT
from orchestrator.repositories import GITEA, GITHUB, Elsewhere
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.web.problems import BadInput, complaint

DEPTH_LIMIT = 32  # our own bodies have two levels

_Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Body(BaseModel):
    """Unknown names are refused: a misspelt one would silently do nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TicketBody(_Body):
    """``POST /tasks``."""

    repo: _Name
    title: Annotated[str, Field(min_length=1, max_length=TITLE_LIMIT, pattern=r"\S")]
    body: Annotated[str, Field(max_length=BODY_LIMIT)] = ""
    labels: Annotated[list[_Name], Field(max_length=LABEL_LIMIT)] = []
    depends_on: Annotated[list[_Name], Field(max_length=100)] = []
    external_id: _Name | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0


class _Decided(_Body):
    """Who decides, and why."""

    person: _Name = "api"
    reason: Annotated[str, Field(max_length=2000)] = ""


class UnfreezeBody(_Decided):
    """``POST /serial-gate/unfreeze``; with ``for`` the freeze stays, and its merge slot is lent to that task."""

    lend_to: Annotated[_Name | None, Field(alias="for")] = None


class ReleaseBody(_Decided):
    """``POST /transition-lease/release``."""


class AcceptBody(_Decided):
    """``POST /restore/accept``."""


class DecisionBody(_Decided):
    """A person's decision about a task; ``subject`` is the commit that the person saw."""

    subject: Annotated[str, Field(pattern=f"^(?:{SUBJECT.pattern})$")] | None = None


class ResolutionBody(_Body):
    """A person's word on an effect; ``state`` is the one that the person saw."""

    resolution: Annotated[Resolution, Field(strict=False)]
    person: _Name = "api"
    reason: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]
    state: Annotated[EffectState, Field(strict=False)] | None = None


class RepositoryBody(_Body):
    """``POST /repositories``: a checkout on this machine, or ``owner/name`` at a configured server."""

    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    gitea: _Name | None = None
    github: _Name | None = None
    name: _Name
    prefix: _Name

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if [self.path, self.gitea, self.github].count(None) != 2:
            raise ValueError("one of path, gitea and github")
        return self

    def elsewhere(self) -> Elsewhere | None:
        """The repository at a server, if one is named."""
        if self.gitea is not None:
            return Elsewhere(GITEA, self.gitea)
        return Elsewhere(GITHUB, self.github) if self.github is not None else None


class MoveBody(_Decided):
    """``POST /repositories/{name}/move``: ``owner/name``, as its server calls it now."""

    to: _Name


class DisconnectBody(_Decided):
    """``POST /repositories/{name}/disconnect``; ``open`` says what becomes of tasks that have not ended."""

    tickets_only: bool = False
    open: Annotated[OpenTasks, Field(strict=False)] = OpenTasks.REFUSE


class TrackerBody(_Body):
    """``POST /repositories/{name}/tracker``: ``workspace/PROJECT`` at the configured Plane, or the repository's own
    issues at GitHub."""

    plane: _Name | None = None
    issues: bool = False

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.issues is (self.plane is not None):
            raise ValueError("one of plane and issues")
        return self


_B = TypeVar("_B", bound=BaseModel)


def reader(kind: type[_B]) -> Callable[[Request], Awaitable[_B]]:
    """Reads a request's body as a record of ``kind``; an empty one has all defaults.

    What it gives raises :class:`BadInput` where the body is no JSON, too deep, or not of that shape.
    """

    async def read(request: Request) -> _B:
        raw = await request.body()  # bounded by the guard
        declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if raw and declared != "application/json":
            raise BadInput("The body is not declared as JSON.", hint="Send `Content-Type: application/json`.")
        try:
            return kind.model_validate(parse(raw) if raw else {})
        except ValidationError as error:
            raise BadInput(complaint(error.errors()), hint="Nothing was changed.") from error

    return read


def parse(raw: bytes) -> object:
    """JSON as data.

    :raises BadInput: it is none, or too deep.
    """
    try:
        text = raw.decode("utf-8")
        if _depth(text) > DEPTH_LIMIT:
            raise BadInput(f"The JSON is nested more than {DEPTH_LIMIT} levels deep.")
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput("The body is no JSON.", hint="Nothing was changed.") from error


def _depth(text: str) -> int:
    """How deep brackets outside of strings go, at most."""
    if text.count("[") + text.count("{") <= DEPTH_LIMIT:
        return 0
    deepest = depth = 0
    quoted = escaped = False
    for c in text:
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = c == "\\", c != '"'
        elif c == '"':
            quoted = True
        elif c in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "]}":
            depth -= 1
    return deepest


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
