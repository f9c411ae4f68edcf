"""Takes configured secrets out of text, by value (law 10).

What must hold: no configured secret leaves in any of the forms in which programs repeat it – plain, percent-encoded,
escaped for JSON or HTML, or inside base64 at any offset, as in the header of a basic login. A text must be redacted
whole, before it is cut: half a secret is not recognised.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping

from orchestrator.config import MASK, Secret

MIN_LENGTH = (
    6  # masking a shorter value would tear holes into ordinary words; nothing that short keeps a secret
)
DEPTH_MAX = 12  # log entries may hold anything, a mapping that contains itself included
_LINE_MIN = 16  # a line of a longer secret, such as a key file, is masked by itself from this length on


class Redactor:
    """Knows all secrets of the installation. Immutable, so it may be used from any thread."""

    def __init__(self, secrets: Iterable[Secret | str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            forms |= _forms(secret.reveal() if isinstance(secret, Secret) else secret)
        # The longest first, so that no form is left half masked because a shorter one begins at the same place.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(_percent_pattern, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """``text`` with every form of every secret masked."""
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def data(self, value: object, depth: int = DEPTH_MAX) -> object:
        """A copy of JSON-like data with keys and texts redacted; what JSON does not know, or lies deeper than
        ``depth``, becomes redacted text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping) and depth:
            return {self.text(str(key)): self.data(content, depth - 1) for key, content in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and depth:
            return [self.data(content, depth - 1) for content in value]
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode("utf-8", "replace"))
        return self.text(str(value))

    def __repr__(self) -> str:
        return "Redactor()"  # the pattern is made of the secrets


def _forms(secret: str) -> set[str]:
    """Every text in which ``secret`` may show."""
    values = {secret, secret.strip()} | {
        line.strip() for line in secret.splitlines() if len(line.strip()) >= _LINE_MIN
    }
    forms: set[str] = set()
    for value in values:
        if len(value) < MIN_LENGTH:
            continue
        forms |= {value, html.escape(value), html.escape(value, quote=False)}
        forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
        forms |= _base64_forms(value.encode("utf-8", "surrogatepass"))
    return forms


def _percent_pattern(form: str) -> str:
    """A pattern for ``form`` with any of its characters percent-encoded: which ones differs between encoders."""
    return "".join(map(_percent_character, form))


def _percent_character(c: str) -> str:
    codes = "".join(f"%{byte:02x}" for byte in c.encode("utf-8", "surrogatepass"))
    plain = r"[ +]" if c == " " else re.escape(c)
    return f"(?:{plain}|(?i:{codes}))"


def _base64_forms(value: bytes) -> set[str]:
    """What ``value`` looks like inside base64, whatever stands before and after it, in both alphabets.

    Base64 turns three bytes into four characters, so there are three ways in which the value can be aligned; of each
    only the characters that no neighbour has a part in are stable.
    """
    forms: set[str] = set()
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + value).decode("ascii").rstrip("=")
        first = -(-offset * 8 // 6)  # the first character made of the value's bits alone
        last = (offset + len(value)) * 8 // 6
        stable = whole[first:last]
        if len(stable) >= MIN_LENGTH:
            forms |= {stable, stable.translate(str.maketrans("+/", "-_"))}
    return forms
