"""A signature is the only key to a webhook's address."""

import hmac

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import Secret
from orchestrator.webhooks.envelope import signed_by_one

RAW = b'{"event": "issue"}'
OLD, NEW = Secret("an-old-secret-of-the-webhook"), Secret("a-new-secret-of-the-webhook")


def signature(secret: Secret, raw: bytes = RAW) -> str:
    return hmac.new(secret.reveal().encode(), raw, "sha256").hexdigest()


def test_any_of_the_secrets_will_do() -> None:
    for secrets in ((OLD,), (OLD, NEW), (NEW, OLD)):
        assert signed_by_one(signature(OLD), RAW, secrets)
    assert not signed_by_one(signature(OLD), RAW, (NEW,))


def test_no_secret_is_no_key() -> None:
    for said in ("", signature(OLD), hmac.new(b"", RAW, "sha256").hexdigest()):
        assert not signed_by_one(said, RAW, ())


@given(said=st.text(), raw=st.binary())
def test_whatever_else_is_said_opens_nothing(said: str, raw: bytes) -> None:
    assert signed_by_one(said, raw, (OLD, NEW)) is (said in {signature(OLD, raw), signature(NEW, raw)})


@given(st.integers(0, 63))
def test_one_digit_less_or_another_one_is_wrong(place: int) -> None:
    right = signature(OLD)
    other = "0" if right[place] != "0" else "1"
    assert not signed_by_one(right[:place] + right[place + 1 :], RAW, (OLD,))
    assert not signed_by_one(right[:place] + other + right[place + 1 :], RAW, (OLD,))
