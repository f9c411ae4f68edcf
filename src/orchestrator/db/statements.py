"""Loads SQL from named files: ``-- name: claim_next_job`` starts a statement, the next name ends it."""

import re
from functools import cache
from importlib.resources import files

from orchestrator.domain.errors import InvariantError

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statement(name: str) -> str:
    """The text of ``family.statement``, as in ``jobs.claim_next_job``.

    :raises InvariantError: there is no such statement.
    """
    family, _, key = name.partition(".")
    try:
        return _family(family)[key]
    except (KeyError, FileNotFoundError):
        raise InvariantError(f"there is no SQL statement {name}") from None


@cache
def _family(family: str) -> dict[str, str]:
    text = files("orchestrator.db").joinpath("sql", f"{family}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
