"""Statements as PostgreSQL and psycopg want them, translated once.

``:name`` becomes ``%(name)s``. ``a IS b``, with which SQLite compares what may be NULL, becomes
``a IS NOT DISTINCT FROM b``. A text is nothing but a text here: ``CAST(a AS BLOB)`` becomes ``a``. What stands in
``/* postgres: … */`` is said; a snapshot takes no locks, so that there it is left out.
"""

import re
from functools import cache

from orchestrator.db.statements import statement

_PARTS = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*')
  | (?P<comment>--[^\n]*)
  | CAST\((?P<bytes>:?[a-z_.]+)\ AS\ BLOB\)
  | /\*\ postgres:\ (?P<ours>[^*]*)\ \*/
  | (?P<cast>::)
  | :(?P<name>[a-z_]\w*)
  | (?P<mark>%)                                                        # psycopg's own
  | \bIS\b(?P<other>\ NOT\b)?(?!\ (?:NOT\ )?(?:NULL|TRUE|FALSE|DISTINCT)\b)
    """,
    re.VERBOSE,
)


@cache
def text_of(name: str, *, snapshot: bool = False) -> bytes:
    """The statement's text on PostgreSQL.

    :raises InvariantError: there is no such statement.
    """
    return translated(statement(name, "postgres"), snapshot=snapshot).encode()


def translated(sql: str, *, snapshot: bool = False) -> str:
    """A statement of ours in PostgreSQL's words; comments are left out."""

    def part(found: re.Match[str]) -> str:
        if found["bytes"]:
            return translated(found["bytes"], snapshot=snapshot)
        if found["name"]:
            return f"%({found['name']})s"
        if found["ours"]:
            return "" if snapshot else found["ours"]
        if found["comment"]:
            return ""
        if found["text"] or found["cast"] or found["mark"]:
            return found[0].replace("%", "%%")
        return "IS DISTINCT FROM" if found["other"] else "IS NOT DISTINCT FROM"

    return _PARTS.sub(part, sql)
