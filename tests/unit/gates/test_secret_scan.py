"""Secrets in added lines: found by format and by value, never repeated, in bounded time.

Tokens here are put together from pieces, so that no scanner, ours included, takes this file for a leak.
"""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gates.secret_scan import MAX_CHARACTERS, MAX_FINDINGS, scan

ALNUM = "a1B2c3D4e5F6g7H8i9J0"


def part(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


TOKENS = {
    "aws": "AKIA" + "Z7QK3MPLW2XNV5RT",
    "github": "ghp" + "_" + (ALNUM * 2)[:36],
    "github fine-grained": "github" + "_pat_" + (ALNUM * 2)[:22] + "_" + (ALNUM * 4)[:59],
    "gitlab": "glpat" + "-" + ALNUM,
    "slack": "xoxb" + "-123456789012-" + "abcdefghij0123456789",
    "anthropic": "sk-" + "ant-api03-" + ALNUM * 3,
    "openai": "sk-" + "proj-" + ALNUM * 3,
    "openai, old": "sk-" + (ALNUM * 3)[:48],
    "npm": "npm" + "_" + (ALNUM * 2)[:36],
    "google": "AI" + "za" + (ALNUM * 2)[:35],
    "stripe": "sk_" + "live_" + (ALNUM * 2)[:24],
    "telegram": "123456789" + ":" + (ALNUM * 2)[:35],
    "sendgrid": "SG" + "." + (ALNUM * 2)[:22] + "." + (ALNUM * 3)[:43],
    "jwt": part({"alg": "HS256", "typ": "JWT"})
    + "."
    + part({"sub": "me", "name": "x"})
    + ".c2lnbmF0dXJlMTIzNDU2",
    "pem": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "pkcs8": "-----BEGIN " + "PRIVATE KEY-----",
    "openssh": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "pgp": "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----",
    "address": "postgres://shop:" + "k3iU8qZ1" + "@db.shop.internal/main",
}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("around", ["{}", 'token = "{}"', "x: {} # pragma: allowlist secret", "{};"])
def test_known_formats(name: str, around: str) -> None:
    token = TOKENS[name]
    found = scan([("src/app.py", 3, "nothing here"), ("src/app.py", 12, around.format(token))])
    assert found
    for finding in found:
        assert (finding.file, finding.line) == ("src/app.py", 12)
        assert token not in str(finding) and token[-12:] not in str(finding)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "def token(self) -> str:",
        "password = os.environ['PASSWORD']",
        "See https://user:password@example.com/x for the format.",
        "DATABASE_URL=postgres://postgres:postgres@localhost:5432/test",
        "url = f'https://oauth2:{token}@{host}'",
        "https://user:${TOKEN}@host/x",
        "https://user:***@host/x",
        "http://localhost:8000/path@2x.png",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id = '123e4567-e89b-12d3-a456-426614174000'",
        "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "the header BEGIN PRIVATE KEY starts such a file",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "task-sk-something-else-entirely-and-long-enough",
    ],
)
def test_ordinary_lines_pass(line: str) -> None:
    assert scan([("a.txt", 1, line)]) == ()


def test_configured_secrets_are_found_by_value() -> None:
    found = scan([("a", 1, "x = 'plain-words-only'"), ("b", 2, "short")], known=["plain-words-only", "short"])
    assert [(finding.file, finding.line) for finding in found] == [("a", 1)]
    assert "plain-words" not in str(found)


@pytest.mark.parametrize("at", [0, 3000, 3072, 4000, 4090, 4096, 9999, 100_000])
def test_long_lines_are_read_to_their_end(at: int) -> None:
    line = "x " * (at // 2) + TOKENS["github"] + " y" * 50
    assert scan([("min.js", 1, line)])


def test_a_secret_in_a_file_name_is_found_and_not_shown() -> None:
    token = TOKENS["github"]
    found = scan([(f"keys/{token}\n.txt", 1, "nothing"), (f"keys/{token}\n.txt", 2, TOKENS["aws"])])
    assert len(found) == 2
    assert token not in str(found) and all(str(finding).isprintable() for finding in found)


def test_too_much_is_refused_not_passed() -> None:
    found = scan((f"f{n}", n, "x" * 1000) for n in range(MAX_CHARACTERS // 1000 + 2))
    assert len(found) == 1 and "more than is scanned" in found[0].message


def test_findings_are_bounded() -> None:
    found = scan(("a", n, TOKENS["aws"]) for n in range(1, 10_000))
    assert len(found) == MAX_FINDINGS + 1 and "may be more" in found[-1].message


@pytest.mark.parametrize(
    "unit",
    ["a", "eyJ", "aws", "//", "xoxb-1-", "glpat-", "sk-", "://a:", "-----BEGIN ", "0123456789:", "://a:b"],
)
def test_hostile_lines_take_linear_time(unit: str) -> None:
    """A quadratic pattern takes minutes for these half a million characters."""
    line = unit * (500_000 // len(unit))
    started = time.process_time()
    scan([("a", 1, line)])
    assert time.process_time() - started < 20


@given(st.lists(st.tuples(st.text(max_size=20), st.integers(1, 99), st.text(max_size=200)), max_size=5))
def test_any_text_is_scanned(lines: list[tuple[str, int, str]]) -> None:
    for finding in scan(lines):
        assert str(finding).isprintable()


@given(st.text(max_size=100), st.sampled_from(sorted(TOKENS)), st.text(max_size=100))
def test_no_finding_repeats_a_secret(before: str, name: str, after: str) -> None:
    for finding in scan([("a", 1, f"{before} {TOKENS[name]} {after}")]):
        assert TOKENS[name] not in str(finding)
