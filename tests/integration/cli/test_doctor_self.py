"""`orch doctor` on a deploy of ourselves: whether a version that does not come up would be undone."""

from typing import Any

import pytest

from tests.fixtures_orch import CONFIG, Here, Orch

PRODUCTION = (
    '[production]\nname = "orch"\ndeploy = ["true"]\n{undo}[production.probe]\nurl = "http://127.0.0.1:1/"\n'
)
GUARDED = CONFIG + PRODUCTION.format(undo='undo = ["true"]\n')


def said_of_it(here: Here, orch: Orch, config: str, **settings: str) -> list[dict[str, Any]]:
    assert here("init", cwd=orch.checkout(files={".orchestrator.toml": config}).folder).code == 0
    for name, value in settings.items():
        here.monkeypatch.setenv(name, value)
    findings = here("doctor", "--json", cwd=orch.folder).data["findings"]
    return [finding for finding in findings if finding["about"] == "self-deploy"]


@pytest.mark.parametrize(
    ("config", "settings", "level", "text"),
    [
        (GUARDED, {"ORCH_SELF_REPO": "shop", "ORCH_BUILD_SHA": "a" * 40}, "ok", "not reported after 310s"),
        (GUARDED, {"ORCH_SELF_REPO": "shop"}, "warning", "does not know its own commit"),
        (GUARDED, {"ORCH_SELF_REPO": "other"}, "warning", "other (ORCH_SELF_REPO) is not registered"),
        (CONFIG, {"ORCH_SELF_REPO": "shop"}, "note", "has no production"),
        (CONFIG + PRODUCTION.format(undo=""), {"ORCH_SELF_REPO": "shop"}, "warning", "has no undo"),
    ],
    ids=["guarded", "unknown-build", "unknown-repository", "no-production", "no-undo"],
)
def test_self_deploy(
    here: Here, orch: Orch, config: str, settings: dict[str, str], level: str, text: str
) -> None:
    [finding] = said_of_it(here, orch, config, **settings)
    assert (finding["level"], text in finding["text"]) == (level, True), finding


def test_nothing_is_said_where_nothing_of_ours_is_delivered(here: Here, orch: Orch) -> None:
    assert said_of_it(here, orch, GUARDED) == []
