"""One request of an agent program, reduced to what a script needs, whatever protocol it came in. Never raises
on odd bodies.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OPENING_MESSAGES = 4  # of these and the system prompt a scenario's ``when`` is searched
WORKING_DIRECTORY = re.compile(r"(?:working directory: |<cwd>)(/[^\s<]+)", re.IGNORECASE)
MODEL_ITEMS = frozenset({"function_call", "reasoning", "custom_tool_call"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and by a program with which tools."""

    model: str
    stream: bool
    tools: Mapping[str, Mapping[str, object]]  # name → the properties of its input
    namespaces: tuple[str, ...]  # of tools, where a program groups them
    opening: str  # system prompt and first messages
    size: int  # characters of everything
    turns: int  # how often the model has answered in this conversation
    conversation: str  # the same for all requests of one conversation
    cwd: str


def asked(body: Mapping[str, object]) -> Asked:
    """The request in ``body``."""
    messages = _messages(body)
    system = flat(body.get("system") or body.get("instructions") or "")
    first = [message for message in messages if message.get("role") in ("user", "developer", "system")]
    opening = "\n".join([system, *(flat(message) for message in first[:OPENING_MESSAGES])])
    cwd = WORKING_DIRECTORY.search(opening)
    prompt = "\n".join(flat(message) for message in first[:1])
    tools, namespaces = _tools(body.get("tools"))
    return Asked(
        model=str(body.get("model") or "scripted"),
        stream=body.get("stream") is True,
        tools=tools,
        namespaces=namespaces,
        opening=opening,
        size=len(system) + sum(len(flat(message)) for message in messages),
        turns=_turns(messages),
        conversation=hashlib.sha256(prompt.encode(errors="replace")).hexdigest()[:16],
        cwd=cwd.group(1) if cwd else ".",
    )


def flat(value: object) -> str:
    """All text in a part of a request, whatever its nesting."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(flat(value[key]) for key in ("text", "content", "output") if key in value)
    return "\n".join(map(flat, value)) if isinstance(value, list) else ""


def _messages(body: Mapping[str, object]) -> list[dict[str, object]]:
    given = body.get("messages") or body.get("input") or []
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [message for message in given if isinstance(message, dict)] if isinstance(given, list) else []


def _turns(messages: Sequence[Mapping[str, object]]) -> int:
    """Answers: runs of messages by the model, for one answer may be several items."""
    turns, before = 0, False
    for message in messages:
        ours = message.get("role") == "assistant" or message.get("type") in MODEL_ITEMS
        turns += ours and not before
        before = ours
    return turns


def _tools(given: object) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    tools: dict[str, dict[str, object]] = {}
    namespaces = []
    for tool in given if isinstance(given, list) else ():
        if not isinstance(tool, dict):
            continue
        function = tool.get("function")
        inner = function if isinstance(function, dict) else tool
        schema = inner.get("input_schema") or inner.get("parameters") or {}
        properties = schema.get("properties") if isinstance(schema, dict) else None
        tools[str(inner.get("name") or tool.get("type"))] = properties if isinstance(properties, dict) else {}
        if tool.get("type") == "namespace":
            namespaces.append(str(tool.get("name")))
    return tools, tuple(namespaces)
