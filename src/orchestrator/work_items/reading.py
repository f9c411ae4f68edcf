"""From the bytes of a document to text, or to a refusal that says where and why.

A document is written by an agent or comes with a repository: hostile data. What must hold: the caller can always
tell "not there" from "not readable", and equal texts with and without a byte-order mark or CRLF mean the same.
On failure: ``DocumentError`` with its findings, and nothing else.
"""

from collections.abc import Iterable

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.gate import Finding

MAX_BYTES = 1024 * 1024
"""No document that a person is meant to read is longer; beyond it parsing costs seconds."""

_SHOWN = 60  # of a value found, enough to recognise it in the file


class DocumentError(OutsideError):
    """A document cannot be used as it stands; whoever wrote it has to change what the findings name."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def refusal(file: str, line: int | None, found: str, expected: str) -> DocumentError:
    """The error for one objection: what stands there, and what should."""
    return DocumentError((objection(file, line, found, expected),))


def objection(file: str, line: int | None, found: str, expected: str) -> Finding:
    """One finding in the form that all of this room uses."""
    return Finding(f"{found}; expected {expected}", file, line)


def shown(value: object) -> str:
    """A value found in a document, short and on one line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def decode(data: bytes, *, file: str) -> str:
    """The text of a document with ``\\n`` line ends and without a byte-order mark.

    :raises DocumentError: more than 1 MiB, bytes that are not UTF-8, a NUL.
    """
    if len(data) > MAX_BYTES:
        raise refusal(file, None, f"the file has {len(data)} bytes", f"at most {MAX_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        offset = _offset(data, error)
        line = _line_ends(data[:offset]) + 1
        found = f"byte 0x{data[offset]:02x} at offset {offset} is not UTF-8"
        raise refusal(file, line, found, "the file saved as UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    nul = text.find("\0")
    if nul >= 0:
        raise refusal(file, text.count("\n", 0, nul) + 1, "a NUL character", "text")
    return text


def _offset(data: bytes, error: UnicodeDecodeError) -> int:
    # The codec counts from behind the byte-order mark.
    return error.start + (len(data) - len(error.object))


def _line_ends(data: bytes) -> int:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
