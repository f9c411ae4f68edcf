"""One pass over one TOML document: turns tables into fields and collects what is wrong, each with its place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain.spelling import did_you_mean
from orchestrator.repo_config.keys import Key

_SHOWN = 60  # characters of a wrong value or an unknown name that a message repeats


@dataclass(slots=True)
class Reading:
    """One pass over one document: collects problems with their places."""

    text: str
    _found: list[tuple[int, str]] = field(default_factory=list)
    _places: set[str] = field(default_factory=set)

    def problem(self, place: str, what: str) -> None:
        """Note what is wrong at a dotted place."""
        line = _line_of(self.text, place)
        self._places.add(place)
        self._found.append((line or 0, f"line {line}: {place} {what}" if line else f"{place} {what}"))

    @property
    def problems(self) -> list[str]:
        """All problems, in the order of the lines."""
        return [what for _, what in sorted(self._found, key=lambda found: found[0])]

    def reported(self, place: str) -> bool:
        """True where something at or below ``place`` was already said."""
        return any(seen == place or seen.startswith(place + ".") for seen in self._places)

    def table(self, name: str, parent: Mapping[str, Any], within: str = "") -> Mapping[str, Any] | None:
        """The table ``name`` of ``parent``, or ``None`` where there is none."""
        value = parent.get(name)
        if value is None or isinstance(value, dict):
            return value
        place = f"{within}.{name}" if within else name
        self.problem(place, f"is {_shown(value)}, expected a table [{place}].")
        return None

    def keys(
        self, place: str, table: Mapping[str, Any], known: tuple[Key, ...], others: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The record's fields that ``table`` sets; everything else in it is reported."""
        prefix = f"{place}." if place else ""
        spellings = {key.name: key for key in known} | {key.field: key for key in known}
        found: dict[str, Any] = {}
        for name, value in table.items():
            key = spellings.get(name)
            if key is None:
                continue
            if key.field in found:
                self.problem(prefix + name, f"is given twice, as {key.name} and as {key.field}. Keep one.")
                continue
            try:
                found[key.field] = key.read(value)
            except ValueError as expected:
                self.problem(prefix + name, f"is {_shown(value)}, expected {expected}.")
        for key in known:
            if key.why and key.name not in table and key.field not in table:
                self.problem(prefix + key.name, f"is missing: {key.why}.")
        self.unknown(place, table, [*spellings, *others])
        return found

    def unknown(self, place: str, table: Mapping[str, Any], known: list[str]) -> None:
        """Report the keys of ``table`` that are not known."""
        prefix = f"{place}." if place else ""
        for name in table:
            if name not in known:
                self.problem(prefix + _key(name), f"is no key we know. {did_you_mean(name, known)}".rstrip())

    def record(self, place: str, table: Mapping[str, Any], known: tuple[Key, ...], record: Any) -> Any:
        """The record that ``table`` describes, or ``None`` where a required key is missing or wrong."""
        values = self.keys(place, table, known)
        return record(**values) if self.complete(known, values) else None

    @staticmethod
    def complete(known: tuple[Key, ...], values: Mapping[str, Any]) -> bool:
        """True where every required key has a value."""
        return all(key.field in values for key in known if key.why)


def _line_of(text: str, place: str) -> int | None:
    """The line where ``place`` stands, as far as plain headers and keys tell; else that of its table, else ``None``."""
    table, _, name = place.rpartition(".")
    current = ""
    header_line = None
    for count, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\[\]]+?)\s*\]", line):
            current = re.sub(r"[\s\"']", "", header[1])
            if current == place:
                return count
            header_line = count if current == table else header_line
        elif current == table and (key := re.match(r"\s*([\w.\"'-]+?)\s*=", line)):
            names = (name, f"{name}_s")
            if key[1].strip("\"'") in names:
                return count
    return header_line


def _key(name: str) -> str:
    """An unknown key, bounded and without control characters."""
    return name if name.isprintable() and len(name) <= _SHOWN else ascii(name[:_SHOWN])


def _shown(value: Any) -> str:
    """A wrong value as people wrote it, bounded; tables and lists by their kind alone."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = ascii(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
