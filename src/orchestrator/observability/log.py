"""Where the product's log goes and what it looks like.

Entries are constant text plus fields, to standard error, one line each (a traceback follows indented in the human
format). What must hold: everything passes the redactor last, entries of libraries included – some of them log
addresses that carry tokens; no value can start a new line or send control codes to a terminal; a log that cannot be
written stops nothing.
"""

import json
import logging
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO, cast

import structlog

from orchestrator.config import LogFormat, Secret, Settings
from orchestrator.observability.redactor import Redactor

Logger = structlog.stdlib.BoundLogger
_Entry = MutableMapping[str, Any]

_VALUE_MAX = 8192  # characters of one value; an agent's output has its own files
_TRACE_MAX = 32_768
_FIRST = ("timestamp", "level", "event")
_QUIET = ("httpx", "httpcore", "asyncio", "uvicorn.access")  # they log every call; ours say what it was about


def get_logger(name: str) -> Logger:
    """The log of one module. Costs nothing before its first entry."""
    return cast(Logger, structlog.get_logger(name))


def configure_logging(
    settings: Settings,
    secrets: Iterable[Secret],
    *,
    utc: Callable[[], datetime],
    stream: TextIO | None = None,
) -> Redactor:
    """Set up the log of this process and return its redactor, which knows the settings' secrets and ``secrets``.

    Calling it again replaces what was set up before.
    """
    redactor = Redactor([*settings.secrets(), *secrets])

    def timestamp(logger: Any, method: str, entry: _Entry) -> _Entry:
        entry["timestamp"] = utc().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return entry

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        timestamp,
        structlog.processors.format_exc_info,
    ]
    render = _json_line if settings.log_format is LogFormat.JSON else _text_line
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                lambda logger, method, entry: render(_clean(redactor, entry)),
            ],
            foreign_pre_chain=shared,
        )
    )
    level = logging.getLevelName(settings.log_level.upper())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    return redactor


def log_uncaught_errors() -> None:
    """Send the traceback of an error that nobody caught through the log, hence through the redactor."""
    log = get_logger("uncaught")

    def of_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.error("an error was not caught", exc_info=(kind, error, trace))

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            thread = args.thread.name if args.thread else None
            trace = (args.exc_type, args.exc_value, args.exc_traceback)
            log.error("an error was not caught", thread=thread, exc_info=trace)

    sys.excepthook = of_main
    threading.excepthook = of_thread


def neutral(text: str) -> str:
    """``text`` on one line, with control, bidirectional and invalid characters escaped: safe for any terminal."""
    return "".join(c if c.isprintable() or _harmless(c) else ascii(c)[1:-1] for c in text)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to a stream; when that fails it says nothing, for the text it would print is not redacted."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the entry."""


def _harmless(c: str) -> bool:
    return (
        unicodedata.category(c) == "Zs"
    )  # blanks other than the plain one are no printable characters for Python


def _clean(redactor: Redactor, entry: _Entry) -> dict[str, Any]:
    """The entry as JSON-like data without secrets, fields in a fixed order."""
    plain = cast(dict[str, Any], redactor.data(entry))
    exception = plain.pop("exception", None)
    ordered = {name: _bounded(plain.pop(name)) for name in _FIRST if name in plain}
    ordered |= {name: _bounded(plain[name]) for name in sorted(plain)}
    if exception is not None:
        ordered["exception"] = exception[-_TRACE_MAX:]
    return ordered


def _bounded(value: Any) -> Any:
    """The value, its text cut to what a line may hold."""
    if isinstance(value, str) and len(value) > _VALUE_MAX:
        return f"{value[:_VALUE_MAX]}… ({len(value)} characters)"
    if isinstance(value, dict | list):
        text = json.dumps(value, default=str)
        return value if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}… ({len(text)} characters)"
    return value


def _json_line(entry: dict[str, Any]) -> str:
    """One JSON object. Not ASCII-only, so that a search finds Cyrillic; control codes are escaped by ``neutral``."""
    line = json.dumps(entry, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() or _harmless(c) else json.dumps(c)[1:-1] for c in line)


def _text_line(entry: dict[str, Any]) -> str:
    """``time level event field=value …`` for people."""
    exception = entry.pop("exception", None)
    head = [str(entry.pop(name, "")) for name in ("timestamp", "level", "event")]
    fields = [f"{neutral(str(name))}={_text_value(value)}" for name, value in entry.items()]
    line = " ".join([head[0], f"{head[1]:<8}", neutral(head[2]), *fields]).rstrip()
    if exception is None:
        return line
    return "\n".join([line, *("    " + neutral(part) for part in str(exception).split("\n"))])


def _text_value(value: Any) -> str:
    """A value that can be told from the next field."""
    if isinstance(value, str):
        shown = neutral(value)
        plain = shown and not any(c in ' "=' for c in shown)
        return shown if plain else json.dumps(shown, ensure_ascii=False)
    return neutral(json.dumps(value, ensure_ascii=False, default=str))
