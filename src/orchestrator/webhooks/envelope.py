"""What a sender writes on the outside of a delivery: whose it is, what kind it is, under which number it came.

The signature alone is trusted, and it covers the body alone: kind and number are hints, so that whoever repeats a body
under other headers gets no more than a second look at it.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.config import Secret


@dataclass(frozen=True, slots=True)
class Envelope:
    """The headers of one sender. Of several names the first that is there counts, and it has to be there once."""

    signature: tuple[str, ...]  # HMAC-SHA256 of the raw body, lower-case hexadecimal digits
    kind: tuple[str, ...]
    delivery: tuple[str, ...]
    signature_prefix: str = ""
    kind_in_body: str = ""  # the body's own name of its kind, which is signed, comes before the header


def signed_by_one(said: str, raw: bytes, secrets: Iterable[Secret]) -> bool:
    """Whether ``said`` is what one of the secrets makes of the bytes as they came; never without a secret.

    Takes as long for a wrong one as for a right one.
    """
    given = said.encode("utf-8", "replace")
    made = [hmac.digest(secret.reveal().encode(), raw, "sha256").hex().encode() for secret in secrets]
    return any([hmac.compare_digest(given, one) for one in made])  # noqa: C419 - no early end: constant time


def path_of(source: str) -> str:
    """Where a sender delivers."""
    return f"/webhooks/{source}"
