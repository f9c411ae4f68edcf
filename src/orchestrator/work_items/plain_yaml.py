"""YAML as plain data: mappings, lists, and every scalar exactly as it was written.

``no`` stays ``no``, ``1.10`` stays ``1.10``, a date stays its text: what a value means is decided afterwards, by the
type its field declares. The parts of YAML that make a small file large or make it run code (anchors, aliases, tags,
directives), and those that hide a mistake (duplicate keys, several documents), are refused.
On failure: ``DocumentError`` naming the line.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import yaml
from yaml.events import AliasEvent, CollectionStartEvent, DocumentStartEvent, Event, NodeEvent, StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from orchestrator.work_items.reading import DocumentError, decode, refusal, shown

MAX_DEPTH = 32
"""Mappings and lists inside each other; documents of ours need three."""

MAX_NODES = 20_000
"""Scalars, lists and mappings of one document: it bounds the time to about a second, whatever the text."""

Value = str | list["Value"] | dict[str, "Value"]
Path = tuple[str | int, ...]
"""Where a value stands: keys and positions from the top."""


@dataclass(frozen=True, slots=True)
class PlainYaml:
    """A document's value, and the line on which each of its parts begins."""

    value: Value
    lines: Mapping[Path, int]


def parse_yaml(data: bytes, *, file: str) -> Value:
    """The one YAML document in ``data`` as nested ``dict``, ``list`` and ``str``.

    :raises DocumentError: not usable; the finding names file, line and what was expected.
    """
    return read_yaml(data, file=file).value


def read_yaml(data: bytes, *, file: str) -> PlainYaml:
    """As ``parse_yaml``, with the lines.

    :raises DocumentError: as ``parse_yaml``.
    """
    return read_yaml_text(decode(data, file=file), file=file)


def read_yaml_text(text: str, *, file: str, first_line: int = 1) -> PlainYaml:
    """As ``read_yaml``, for a part of a file that begins on ``first_line``.

    :raises DocumentError: as ``parse_yaml``.
    """
    places = _Places(text, file, first_line)
    try:
        loader = _PlainLoader(text, places)
        try:
            root = loader.single_document()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _translated(error, places) from None
    except yaml.reader.ReaderError as error:
        # ``position`` is a character's index: the text was decoded before.
        found = f"character U+{ord(text[error.position]):04X}"
        raise places.refusal(error.position, found, "printable text") from None
    except (ValueError, OverflowError):
        # A numeric escape beyond Unicode, or a version number of thousands of digits.
        raise refusal(
            file, first_line, "an escape or a number that YAML does not allow", "plain text"
        ) from None
    lines: dict[Path, int] = {}
    return PlainYaml(_plain(root, (), lines, places), lines)


class _Places:
    """Turns a character's index into the line a person sees in an editor.

    The parser's own count takes U+0085 and U+2028 for line ends; editors and git do not.
    """

    def __init__(self, text: str, file: str, first_line: int) -> None:
        self.file = file
        self._first_line = first_line
        self._starts = [0]
        position = text.find("\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = text.find("\n", position + 1)

    def line(self, index: int) -> int:
        return self._first_line + bisect_right(self._starts, index) - 1

    def refusal(self, index: int, found: str, expected: str) -> DocumentError:
        return refusal(self.file, self.line(index), found, expected)


class _PlainLoader(yaml.BaseLoader):
    """PyYAML's untyped loader, without what a document of ours never needs."""

    def __init__(self, text: str, places: _Places) -> None:
        super().__init__(text)
        self._places = places
        self._depth = 0
        self._nodes = 0

    def single_document(self) -> Node:
        self.get_event()  # type: ignore[no-untyped-call] # start of stream
        if self.check_event(StreamEndEvent):
            raise self._places.refusal(0, "nothing but white space and comments", "`key: value` lines")
        start = self._coming()
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            raise self._refusal(start, "a % directive", "YAML without directives")
        root = self.compose_document()
        if not self.check_event(StreamEndEvent):
            expected = "one document: all keys together, with no `---` between them"
            raise self._refusal(self._coming(), "a second YAML document", expected)
        assert root is not None  # noqa: S101 - compose_document returns None for no stream of ours
        return root

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self._coming()
        if isinstance(event, AliasEvent):
            raise self._refusal(
                event, f"an alias (`*{event.anchor}`)", "the value written out, or text in quotes"
            )
        if isinstance(event, NodeEvent) and event.anchor is not None:
            raise self._refusal(event, f"an anchor (`&{event.anchor}`)", "no anchors, or text in quotes")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._refusal(event, f"a tag ({shown(tag)})", "no tags, or text in quotes")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._refusal(event, f"more than {MAX_NODES} values", "a document that people can read")
        nested = isinstance(event, CollectionStartEvent)
        self._depth += nested
        if self._depth > MAX_DEPTH:
            raise self._refusal(event, f"more than {MAX_DEPTH} levels of nesting", "a flatter document")
        node = super().compose_node(parent, index)
        self._depth -= nested
        return node

    def _coming(self) -> Event:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        assert isinstance(event, Event)  # noqa: S101 - the parser hands out events
        return event

    def _refusal(self, event: Event, found: str, expected: str) -> DocumentError:
        mark = event.start_mark
        return self._places.refusal(mark.index if mark is not None else 0, found, expected)


def _plain(node: Node, path: Path, lines: dict[Path, int], places: _Places) -> Value:
    lines[path] = places.line(node.start_mark.index)
    if isinstance(node, ScalarNode):
        return str(node.value)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, number), lines, places) for number, item in enumerate(node.value)]
    assert isinstance(node, MappingNode)  # noqa: S101 - there is no fourth kind
    mapping: dict[str, Value] = {}
    for key_node, value_node in node.value:
        key = _key(key_node, places)
        if key in mapping:
            first = lines[(*path, key)]
            found = f"the key {shown(key)} stands here again (first on line {first})"
            raise places.refusal(key_node.start_mark.index, found, "each key once")
        mapping[key] = _plain(value_node, (*path, key), lines, places)
        lines[(*path, key)] = places.line(key_node.start_mark.index)
    return mapping


def _key(node: Node, places: _Places) -> str:
    if not isinstance(node, ScalarNode):
        raise places.refusal(node.start_mark.index, "a list or mapping used as a key", "a word as key")
    key = str(node.value)
    if not key:
        raise places.refusal(node.start_mark.index, "a value without a key", "`key: value`")
    return key


def _translated(error: yaml.MarkedYAMLError, places: _Places) -> DocumentError:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "not YAML"
    index = mark.index if mark is not None else 0
    if r"'\t'" in problem:
        return places.refusal(index, "a tab in the indentation or between values", "spaces")
    if "mapping values are not allowed" in problem:
        expected = 'text that holds ": " in quotes, and the same indentation for all keys of a level'
        return places.refusal(index, "a second `: ` where a value stands", expected)
    if "cannot start any token" in problem:
        return places.refusal(
            index, f"not YAML ({problem})", "text that begins with such a character in quotes"
        )
    return places.refusal(
        index, f"not YAML ({problem})", "`key: value` lines, text with special characters in quotes"
    )
