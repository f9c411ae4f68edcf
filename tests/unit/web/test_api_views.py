"""Records as JSON data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from orchestrator.domain.stage import Stage
from orchestrator.web import metrics, views


@dataclass(frozen=True, slots=True)
class Thing:
    stage: Stage
    data: Mapping[str, object]
    content: bytes
    parts: tuple[Path, ...]


def test_plain_is_json_all_the_way() -> None:
    thing = Thing(Stage.DEPLOY, MappingProxyType({"a": (1, None)}), b"\xff\xc3\xa9", (Path("/x"),))
    told = views.plain(thing)
    assert json.loads(json.dumps(told)) == {
        "stage": "deploy",
        "data": {"a": [1, None]},
        "content": "\ufffd\u00e9",
        "parts": ["/x"],
    }


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", True),
        ("text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("application/json;q=0.9,text/plain;q=0.5", False),
        ("application/json,text/plain", False),
        ("text/plain;q=nonsense", False),
        ("application/openmetrics-text", True),
    ],
    ids=range(8),
)
def test_who_gets_prometheus_text(accept: str, text: bool) -> None:
    assert metrics.wants_prometheus(accept) is text
