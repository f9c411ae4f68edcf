"""What the scripted model says in one turn, before a protocol gives it form."""

import itertools
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.scripted_model.asking import Asked
from orchestrator.scripted_model.scenario import Step

CHUNK = 400  # characters of text in one piece of a stream
CHARS_PER_TOKEN = 4
SHELLS = ("Bash", "bash", "run_shell_command")
FILE_TOOLS = (("Write", "Read", "file_path"), ("write", "read", "filePath"))  # these want absolute paths

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; ``arguments`` is JSON, or what should be."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Text and calls of one turn, and what they are said to have cost in tokens."""

    model: str
    text: str
    calls: tuple[Call, ...]
    namespaces: tuple[str, ...]
    stop: str | None
    input: int
    output: int
    cache_read: int
    cache_write: int

    @property
    def pieces(self) -> list[str]:
        """The text as a stream brings it."""
        return [self.text[start : start + CHUNK] for start in range(0, len(self.text), CHUNK)]


def answer(request: Asked, step: Step) -> Answer:
    """The answer that a step stands for."""
    text = str(step.get("text") or "") * _int(step.get("repeat"), 1)
    calls = tuple(
        Call(new_id("call"), name, given if isinstance(given, str) else json.dumps(given))
        for name, given in _calls(request, step)
    )
    said = len(text) + sum(len(call.arguments) for call in calls)
    usage = step.get("usage")
    stated = usage if isinstance(usage, dict) else {}
    return Answer(
        model=request.model,
        text=text,
        calls=calls,
        namespaces=request.namespaces,
        stop=str(step["stop"]) if "stop" in step else None,
        input=_int(stated.get("input"), request.size // CHARS_PER_TOKEN + 1),
        output=_int(stated.get("output"), said // CHARS_PER_TOKEN + 1),
        cache_read=_int(stated.get("cache_read"), 0),
        cache_write=_int(stated.get("cache_write"), 0),
    )


def new_id(prefix: str) -> str:
    """An id that this process has not given before."""
    return f"{prefix}_{next(_numbers):08d}"


def _calls(request: Asked, step: Step) -> Iterator[tuple[str, object]]:
    several = step.get("calls")
    if isinstance(several, list):
        for inner in several:
            yield from _calls(request, inner)
    elif "shell" in step:
        yield _shell(request, str(step["shell"]))
    elif isinstance(write := step.get("write"), dict):
        yield from _write(request, str(write.get("path")), str(write.get("content")))
    elif "tool" in step:
        yield str(step["tool"]), step.get("input") or {}
    elif "malformed" in step:
        name = _shell(request, "true")[0]
        broken: dict[object, tuple[str, object]] = {
            "json": (name, '{"command": "ls'),
            "unknown": ("no_such_tool", {}),
            "args": (name, {}),
        }
        yield broken[step["malformed"]]


def _shell(request: Asked, command: str) -> tuple[str, object]:
    """A command in the way the program's own shell tool takes it."""
    for name, properties in request.tools.items():
        if name in SHELLS:
            about = {"description": "scripted step"} if "description" in properties else {}
            return name, {"command": command, **about}
        if name == "exec_command":
            return name, {"cmd": command}
        if name in ("shell", "shell_command"):
            kind = properties.get("command")
            as_list = isinstance(kind, dict) and kind.get("type") == "array"
            return name, {"command": ["bash", "-lc", command] if as_list else command}
    return "bash", {"command": command}


def _write(request: Asked, path: str, content: str) -> Iterator[tuple[str, object]]:
    """A file, new or not: programs refuse to replace one that was not read before."""
    for write, read, key in FILE_TOOLS:
        if write in request.tools:
            place = {key: str(PurePosixPath(request.cwd) / path)}
            if read in request.tools:
                yield read, place
            yield write, {**place, "content": content}
            return
    folder, target = shlex.quote(str(PurePosixPath(path).parent)), shlex.quote(path)
    yield _shell(request, f"mkdir -p -- {folder} && printf %s {shlex.quote(content)} > {target}")


def _int(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
