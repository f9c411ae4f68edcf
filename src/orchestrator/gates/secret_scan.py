"""Looks for secrets in the lines a change adds.

Uses those detectors of detect-secrets that know the format of a token, by calling them directly: its scanner keeps
settings in process-wide caches, honours ``pragma: allowlist secret`` (which would let an agent excuse itself) and may
ask the network whether a token works. Left out are the detectors that guess from entropy or from a variable's name,
which would block half of all changes, and three whose patterns need quadratic time on hostile lines or hit plain
prose; the table below replaces these, and adds formats the library does not know.

What must hold: a finding never contains the secret; time is bounded by ``MAX_CHARACTERS``, beyond which the scan
refuses the change instead of passing what it did not read.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.domain.gate import Finding

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector

MAX_CHARACTERS = 8_000_000  # about ten seconds for the worst lines we could think of, one for ordinary code
MAX_FINDINGS = 50
_WINDOW = 4096  # a longer line is read in pieces, so that no pattern sees more than this
_OVERLAP = 1024  # longer than any token but the largest certificates
_KNOWN_MIN = 8  # a shorter configured secret would be found in ordinary words

# Every repetition is bounded or starts behind a boundary, so that each pattern takes linear time.
_FORMATS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private key", re.compile(r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----")),
    ("private key", re.compile(r"PuTTY-User-Key-File-[23]: ")),
    ("age secret key", re.compile(r"AGE-SECRET-KEY-1[0-9A-Z]{58}")),
    ("GitHub token", re.compile(r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}")),
    ("Anthropic API key", re.compile(r"(?<![\w-])sk-ant-[A-Za-z0-9_-]{24,200}")),
    ("OpenAI API key", re.compile(r"(?<![\w-])sk-(?:proj-|svcacct-|admin-)[A-Za-z0-9_-]{24,200}")),
    ("OpenAI API key", re.compile(r"(?<![\w-])sk-[A-Za-z0-9]{48}(?![\w-])")),
    ("npm token", re.compile(r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)")),
    ("Google API key", re.compile(r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])")),
    ("Hugging Face token", re.compile(r"(?<!\w)hf_[A-Za-z0-9]{34}(?!\w)")),
    (
        "password in an address",
        re.compile(
            r"://[^\s:/?#\[\]@!$&'()*+,;=\"<>{}]{1,64}:([^\s/@\"'<>{}$*%]{3,128})@(?P<host>[\w.-]{1,253})"
        ),
    ),
)
# What documentation writes where a secret would stand.
_PLACEHOLDER = re.compile(
    r"x{3,}|\.{3,}|(?:my[-_]?|your[-_]?|some[-_]?)?(?:pass(?:word|wd)?|pwd|secret|token|key|user|postgres|root|example|test)"
    r"|AKIAIOSFODNN7EXAMPLE|wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    re.IGNORECASE,
)
_EXAMPLE_HOST = re.compile(
    r"(?:[\w.-]*\.)?example(?:\.(?:com|org|net))?|[\w.-]*\.(?:test|invalid)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Hit:
    """One secret in a text; ``value`` is for masking it, never for a message."""

    kind: str
    value: str


def scan(lines: Iterable[tuple[str, int, str]], known: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Secrets in added lines, given as (file, line, text); at most one finding per kind and line.

    ``known`` are secrets of this installation, found by value whatever their format.
    """
    findings: dict[Finding, None] = {}
    values = tuple(value for value in known if len(value) >= _KNOWN_MIN)
    read = 0
    names: dict[str, str] = {}
    for file, line, text in lines:
        if file not in names:
            read += len(file)
            names[file] = _masked_name(file, values, findings)
        read += len(text)
        if read > MAX_CHARACTERS:
            findings[Finding(_TOO_LARGE, file=names[file], line=line)] = None
            break
        for kind in dict.fromkeys(hit.kind for hit in _hits(text, values)):
            findings[Finding(_MESSAGE.format(kind=kind), file=names[file], line=line)] = None
        if len(findings) >= MAX_FINDINGS:
            findings[Finding(f"There may be more; the scan ended after {MAX_FINDINGS} findings.")] = None
            break
    return tuple(findings)


_MESSAGE = (
    "This looks like a secret ({kind}). Take it out of the change and out of the branch's history; "
    "a program gets it from its environment. If it was real, it has to be replaced."
)
_TOO_LARGE = (
    f"The change adds more than {MAX_CHARACTERS:,} characters, which is more than is scanned for secrets. "
    "Split it, or leave generated files out."
)


def _masked_name(file: str, known: Sequence[str], findings: dict[Finding, None]) -> str:
    """The file's name as findings may show it; a secret in the name is a finding of its own."""
    shown = file
    for hit in _hits(file, known):
        shown = shown.replace(hit.value, "***")
        findings[Finding(_MESSAGE.format(kind=f"{hit.kind}, in the name of a file"))] = None
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _hits(text: str, known: Sequence[str]) -> Iterator[_Hit]:
    """Everything in ``text`` that has the format of a secret, a piece at a time."""
    for start in range(0, max(len(text) - _OVERLAP, 1), _WINDOW - _OVERLAP):
        piece = text[start : start + _WINDOW]
        for value in known:
            if value in piece:
                yield _Hit("a secret of this installation", value)
        for detector in _detectors():
            for value in detector.analyze_string(piece):
                if not _PLACEHOLDER.fullmatch(value):
                    yield _Hit(detector.secret_type, value)
        for kind, pattern in _FORMATS:
            for match in pattern.finditer(piece):
                value = match[1] if pattern.groups else match[0]
                if not _harmless(match, value):
                    yield _Hit(kind, value)


def _harmless(match: re.Match[str], value: str) -> bool:
    """True for placeholders, and for addresses that by their definition lead nowhere."""
    host = match.groupdict().get("host")
    return bool(_PLACEHOLDER.fullmatch(value)) or bool(host and _EXAMPLE_HOST.fullmatch(host))


@functools.cache
def _detectors() -> Sequence["RegexBasedDetector"]:
    """The library's, loaded when something is to be scanned: no command that only asks should wait for it."""
    from orchestrator.gates.secret_detectors import DETECTORS

    return DETECTORS
