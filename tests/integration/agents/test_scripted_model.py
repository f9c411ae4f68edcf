"""The scripted model over HTTP, in the protocols that agent programs speak."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from orchestrator.domain.errors import ConfigError
from orchestrator.scripted_model.scenario import SHIPPED, load
from orchestrator.scripted_model.server import ScriptedModel
from tests.waiting import PATIENCE_S

BASH = {"name": "Bash", "input_schema": {"properties": {"command": {"type": "string"}, "description": {}}}}
WRITE = {"name": "Write", "input_schema": {"properties": {"file_path": {}, "content": {}}}}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ScriptedModel]:
    (tmp_path / "mine.yaml").write_text(
        """
when: "role: tester"
vars: {colour: "colour is (\\\\w+)"}
steps:
  - {error: 429, retry_after: 7, times: 2}
  - {text: "{colour} {gated_sha} {unknown}"}
  - {shell: "echo {work_item}"}
  - {calls: [{write: {path: a/b, content: "it's"}}, {tool: Other, input: {x: 1}}]}
"""
    )
    with ScriptedModel([tmp_path, SHIPPED], log=tmp_path / "log.jsonl") as model:
        yield model


PROMPT = 'role: tester\nwork_item: ORCH-7\ngated_sha: abc\nthe colour is "no", the colour is green\nwork_item: EVIL'


def messages(turns: int, prompt: str = PROMPT) -> list[dict[str, object]]:
    said: list[dict[str, object]] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    for _ in range(turns):
        said += [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    return said


def ask(
    model: ScriptedModel, turns: int, scenario: str = "auto", run: str = "r", **more: object
) -> httpx.Response:
    body = {"model": "m", "messages": messages(turns), "tools": [BASH, WRITE], **more}
    return httpx.post(f"{model.url(scenario, run)}/v1/messages?beta=true", json=body, timeout=60)


def test_place_in_the_script_is_read_from_the_conversation(model: ScriptedModel) -> None:
    for _ in range(2):
        refused = ask(model, 0)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
        assert refused.json()["error"]["type"] == "rate_limit_error"
    for _ in range(2):  # a run begun anew gets the first answer again, and no second fault
        assert ask(model, 0).json()["content"] == [{"type": "text", "text": "green abc {unknown}"}]
    (call,) = ask(model, 1).json()["content"]
    assert (call["name"], call["input"]["command"]) == ("Bash", "echo ORCH-7")
    first, second = ask(model, 2).json()["content"]
    assert first["input"]["content"] == "it's"
    assert (second["name"], second["input"]) == ("Other", {"x": 1})
    assert ask(model, 3).json()["content"][0]["text"] == "Nothing left to do."
    assert ask(model, 0, run="other").status_code == 429


def test_file_is_read_before_it_is_written_where_the_program_has_a_tool_for_that(
    model: ScriptedModel,
) -> None:
    read = {"name": "Read", "input_schema": {"properties": {"file_path": {}}}}
    calls = ask(model, 2, tools=[BASH, WRITE, read]).json()["content"]
    assert [call["name"] for call in calls] == ["Read", "Write", "Other"]
    assert calls[0]["input"]["file_path"] == calls[1]["input"]["file_path"]


def test_stream_says_the_same(model: ScriptedModel) -> None:
    answer = ask(model, 1, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in data] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert json.loads(data[2]["delta"]["partial_json"])["command"] == "echo ORCH-7"
    assert data[4]["delta"]["stop_reason"] == "tool_use"


def test_request_without_tools_counts_for_nothing(model: ScriptedModel) -> None:
    assert ask(model, 0, tools=[]).json()["content"][0]["text"] == "Scripted session"
    assert ask(model, 0).status_code == 429


def test_responses_protocol(model: ScriptedModel) -> None:
    tool = {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}}
    body = {"model": "m", "input": messages(1), "tools": [tool], "stream": True}
    answer = httpx.post(f"{model.url('mine')}/v1/responses", json=body, timeout=60)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    (item,) = events[-1]["response"]["output"]
    assert json.loads(item["arguments"]) == {"cmd": "echo ORCH-7"}


def test_chat_protocol(model: ScriptedModel) -> None:
    tool = {"type": "function", "function": {"name": "bash", "parameters": {"properties": {"command": {}}}}}
    body = {"model": "m", "messages": messages(1), "tools": [tool]}
    url = f"{model.url('mine')}/v1/chat/completions"
    (choice,) = httpx.post(url, json=body, timeout=60).json()["choices"]
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "command": "echo ORCH-7"
    }
    streamed = httpx.post(url, json={**body, "stream": True}, timeout=60).text
    assert streamed.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("scenario", ["reset", "stall-start", "stall-headers", "stall-ping"])
def test_faults_break_the_connection_or_last(model: ScriptedModel, scenario: str) -> None:
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadTimeout)):
        body = {"messages": messages(0), "tools": [BASH], "stream": True}
        with httpx.stream("POST", f"{model.url(scenario)}/v1/messages", json=body, timeout=0.3) as answer:
            for number, _ in enumerate(answer.iter_lines()):
                if number > 20:
                    raise httpx.ReadTimeout("it pings for ever")


def test_tokens_are_counted_and_other_paths_are_not_there(model: ScriptedModel) -> None:
    base = model.url()
    assert httpx.post(f"{base}/v1/messages/count_tokens", json={"a": "b" * 400}).json()["input_tokens"] > 100
    assert httpx.get(f"{base}/v1/models").json()["data"]
    assert httpx.head(base).status_code == 200
    assert httpx.get(f"{base}/nothing").status_code == 404
    assert httpx.post(f"{base}/v1/messages", content=b"{").status_code == 400
    assert "no scripted scenario" in ask(model, 0, "nonsense").json()["content"][0]["text"]


def test_what_was_asked_is_kept(model: ScriptedModel, tmp_path: Path) -> None:
    ask(model, 1)
    assert (model.seen[-1].scenario, model.seen[-1].turns) == ("mine", 1)
    assert json.loads((tmp_path / "log.jsonl").read_text())["step"] == {"shell": "echo ORCH-7"}


def test_shipped_scenarios_load() -> None:
    names = {scenario.name for scenario in load([SHIPPED])}
    assert {"analyst", "architect", "developer", "reviewer", "tester", "deployer", "write-commit"} <= names


@pytest.mark.parametrize("text", ["", "[]", "steps: []", "steps: [x]", "when: '('\nsteps: [{text: a}]", "{"])
def test_wrong_scenario_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"wrong\.yaml"):
        ScriptedModel(tmp_path)


def test_program_serves_until_it_is_told_to_stop() -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.scripted_model"], stdout=subprocess.PIPE, env=os.environ
    )
    with program:
        assert program.stdout is not None
        told = json.loads(program.stdout.readline())
        body = {"messages": messages(0, "role: nobody"), "tools": [BASH]}
        answer = httpx.post(
            f"http://127.0.0.1:{told['port']}/write-commit/r/v1/messages", json=body, timeout=10
        )
        assert answer.json()["content"][0]["text"] == "I will write the file."
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 0
