"""Secrets are exchanged as docs/how-to/rotate-secrets.md says, each of its lines tried."""

import hmac
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from orchestrator.played.gitea import FakeGitea
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import Orch
from tests.project.checkout import ROOT

GUIDE = (ROOT / "docs/how-to/rotate-secrets.md").read_text()


def line_of(beginning: str, place: Path) -> str:
    """A line of the guide, about a file of this test's."""
    [found] = re.findall(rf"^ *({re.escape(beginning)}.*?)(?:  +#.*)?$", GUIDE, re.MULTILINE)
    return str(re.sub(r"/etc/orchestrator/\S+", str(place), found).replace(" -o orch", ""))


def sh(line: str, given: str = "") -> None:
    subprocess.run(["sh", "-c", line], input=given, text=True, check=True)


@pytest.fixture
def server(tmp_path: Path, orch: Orch) -> Iterator[FakeGitea]:
    with FakeGitea(tmp_path / "server") as fake:
        token = tmp_path / "gitea-token"
        token.write_text(f"{fake.token}\n")
        orch.settings |= {"ORCH_GITEA_URL": fake.url, "ORCH_GITEA_TOKEN_FILE": str(token)}
        yield fake


@pytest.mark.long
def test_a_token_at_a_forge(orch: Orch, server: FakeGitea, tmp_path: Path) -> None:
    hand = orch.checkout()
    repository_at(server, hand)
    assert orch("init", "--gitea", NAME, cwd=hand.folder).code == 0
    server.tokens["n3w-t0ken-" + "2" * 30] = "orchbot"
    place = tmp_path / "gitea-token"
    sh(line_of("install -m 600", place), "n3w-t0ken-" + "2" * 30 + "\n")
    assert place.stat().st_mode & 0o777 == 0o600
    server.tokens = {token: login for token, login in server.tokens.items() if token.startswith("n3w")}
    with orch.serving():
        doctor = orch("doctor")
    assert "refuses our token" not in doctor.out
    assert "shop" in doctor.out


@pytest.mark.long
def test_a_webhook_s_secret(orch: Orch, server: FakeGitea, tmp_path: Path) -> None:
    hand = orch.checkout()
    there = repository_at(server, hand)
    there.rights["orchbot"] = "admin"
    assert orch("init", "--gitea", NAME, cwd=hand.folder).code == 0
    place = tmp_path / "gitea-webhook"
    place.write_text("0ld-" + "0" * 30 + "\n")
    orch.settings["ORCH_GITEA_WEBHOOK_SECRET_FILE"] = str(place)
    sh(line_of("openssl rand", place))
    old, new = place.read_text().split()

    def taken(secret: str) -> int:
        body = json.dumps(
            {"ref": "refs/heads/x", "before": "1" * 40, "after": "2" * 40, "by": secret}
        ).encode()
        signed = hmac.new(secret.encode(), body, "sha256").hexdigest()
        headers = {
            "content-type": "application/json",
            "x-gitea-event": "push",
            "x-gitea-delivery": secret[:8],
            "x-gitea-signature": signed,
        }
        try:
            with urlopen(Request(f"{orch.api()['url']}/webhooks/gitea", body, headers)) as answer:
                return int(answer.status)
        except HTTPError as refused:
            return refused.code

    with orch.serving():
        assert (taken(old), taken(new)) == (202, 202)
        assert taken("another-" + "3" * 30) in (401, 403)
        said = orch("connect", "gitea", "--wait", "0")
        assert "its webhook" in said.out
    assert [hook.secret for hook in there.webhooks] == [new]
    sh(line_of("sed -i", place))
    assert place.read_text().split() == [new]
    with orch.serving():
        assert taken(new) in (200, 202)
        assert taken(old) in (401, 403)
