"""Loads SQL from named files: ``-- name: claim_next_job`` starts a statement, the next name ends it.

One text serves every database. What PostgreSQL alone has to be told stands in it as ``/* postgres: FOR UPDATE */``;
where that is not enough, ``sql/postgres/`` has another statement of the same name, and says why.
"""

import re
from functools import cache
from importlib.resources import files

from orchestrator.domain.errors import InvariantError

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statement(name: str, dialect: str = "") -> str:
    """The text of ``family.statement``, as in ``jobs.claim_next_job``; ``dialect`` names a folder of exceptions.

    :raises InvariantError: there is no such statement.
    """
    family, _, key = name.partition(".")
    try:
        return {**_family(family), **exceptions(family, dialect)}[key]
    except (KeyError, FileNotFoundError):
        raise InvariantError(f"there is no SQL statement {name}") from None


def exceptions(family: str, dialect: str) -> dict[str, str]:
    """The statements of a family that a dialect must say otherwise, by name."""
    try:
        return _family(f"{dialect}/{family}") if dialect else {}
    except FileNotFoundError:
        return {}


@cache
def _family(family: str) -> dict[str, str]:
    text = files("orchestrator.db").joinpath("sql", f"{family}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
