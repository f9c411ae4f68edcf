"""Options and small answers that several commands share."""

import os
import pwd
import re
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

import click

from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.task import Ticket

FILE_LIMIT = 1024 * 1024  # bytes of a text that are read; the desk says what it takes

_WORK_ITEM = re.compile(r"[A-Za-z][A-Za-z0-9]*-[0-9]+")

_F = TypeVar("_F", bound=Callable[..., Any])


class Whole(click.IntRange):
    """A whole number between two bounds, refused in words that name what it is."""

    name = "integer"


def json_option(command: _F) -> _F:
    """``--json``: one JSON document on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def work_item_argument(command: _F) -> _F:
    """``TASK``: a task's number. Prefixes are capital letters, so it may be typed in small ones."""
    return click.argument("work_item", metavar="TASK", callback=_work_item)(command)


def as_work_item(text: str) -> str:
    """A task's number as it is written; what looks like none stays as it is."""
    return text.upper() if _WORK_ITEM.fullmatch(text) else text


def person_option(command: _F) -> _F:
    """``--as``: in whose name a decision is made."""
    text = "In whose name the decision is made; by default your user name."
    return click.option("--as", "person", metavar="NAME", help=text)(command)


def person_or_user(person: str | None) -> str:
    """The name given, else the user's."""
    if person and person.strip():
        return person.strip()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def plain_text(value: str | None, what: str) -> str:
    """Text from the command line, which may hold bytes that are no text.

    :raises click.BadParameter: it does.
    """
    text = value or ""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"The {what} is no UTF-8 text.") from error
    return text


def _work_item(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return as_work_item(plain_text(value, "task"))


def ticket_from(
    title: str, body: str | None, body_file: BinaryIO | None, labels: Sequence[str], **more: Any
) -> Ticket:
    """A ticket from the command line.

    :raises RequestRefused: it has no title.
    :raises click.UsageError: its text is given twice, too large, or no text.
    """
    if body is not None and body_file is not None:
        raise click.UsageError("--body and --body-file exclude each other.")
    if body_file is not None:
        data = body_file.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            raise click.UsageError(f"The text is larger than {FILE_LIMIT} bytes.")
        try:
            body = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise click.UsageError("The text is no UTF-8.") from error
    if not title.strip():
        raise RequestRefused(
            "The ticket has no title; nothing was filed.", hint="Say in a few words what is wanted."
        )
    return Ticket(
        title=plain_text(title, "title"),
        body=plain_text(body, "text"),
        labels=tuple(plain_text(label, "label") for label in labels),
        **more,
    )
