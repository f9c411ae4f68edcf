"""The scripted agent as a program: ``python -m orchestrator.agents.scripted --brief FILE [--script FILE]``.

It is no AI and says so. It does what its script tells it for the role and ticket of the brief, in the current
directory, and leaves ``usage.json``. It writes inside the worktree only. On failure it says why and exits 1;
on a wrong script or brief 2.
"""

import json
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.agents.brief import Brief, read_brief
from orchestrator.agents.document_forms import BAD, Form, document, expected
from orchestrator.agents.script import Script, Step, filled, parse_script, steps_for
from orchestrator.domain.errors import ConfigError, OrchestratorError, OutsideError
from orchestrator.domain.stage import Role
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.process import Processes, SystemProcesses

GREETING = "This is the scripted agent of the orchestrator: a program that follows a script, no AI."
RUN_SECONDS = 600.0
CHARS_PER_TOKEN = 4  # so that a demo's cost table has something to show; nothing is billed
CASE = re.compile(r"^\s*-?\s*id:\s*[\"']?(TC-[0-9]{1,4}[a-z]?)\b", re.MULTILINE)
GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false")


class Player:
    """Plays the steps of one brief in a worktree."""

    def __init__(self, brief: Brief, root: Path, processes: Processes, clock: Clock) -> None:
        today = clock.utc().date().isoformat()
        self._brief = replace(brief, date=brief.date or today, model=brief.model or "scripted")
        self._root, self._processes, self._clock = root.resolve(), processes, clock
        self._documents: set[str] = set()
        self.written = 0  # characters

    def play(self, steps: Sequence[Step]) -> int:
        """Every step in order; the exit code.

        :raises OutsideError: a step failed.
        """
        for step in steps:
            ((name, value),) = step.items()
            value = filled(value, self._brief)
            if name == "exit":
                return int(str(value))
            if name == "wait":
                self._clock.wait(threading.Event(), float(str(value)))
            elif name == "say":
                self._say(str(value))
            elif name == "run" and isinstance(value, list):
                self._run([str(word) for word in value])
            elif isinstance(value, dict):
                self._change(name, value)
        return 0

    def _change(self, name: str, value: Mapping[str, object]) -> None:
        match name:
            case "write":
                self._write(str(value["path"]), str(value["content"]))
            case "append":
                old = self._read(str(value["path"]), missing="")
                self._write(str(value["path"]), old + str(value["content"]))
            case "replace":
                self._replace(str(value["path"]), str(value["old"]), str(value["new"]))
            case "commit":
                self._commit(str(value["message"]))
            case "document":
                self._document(str(value["name"]), value)
            case "documents":
                for document_name in expected(self._brief):
                    if document_name not in self._documents:
                        self._document(document_name, value)

    def _document(self, name: str, value: Mapping[str, object]) -> None:
        self._documents.add(name)
        self._write(f"{self._brief.folder}/{name}", document(name, self._brief, self._form(value)))

    def _form(self, value: Mapping[str, object]) -> Form:
        brief = self._brief
        verdict = value.get("verdict")
        given, plan, findings = value.get("cases"), value.get("plan"), value.get("findings")
        outcome = "fail" if verdict == BAD[Role.TESTER] else "pass"
        cases = given if isinstance(given, dict) else dict.fromkeys(self._planned(), outcome)
        planned = plan if isinstance(plan, dict) else {"TC-01": brief.title}
        text = value.get("text") or f"{brief.title}\n\nWritten by the scripted agent ({brief.role.value})."
        return Form(
            text=str(text),
            track=str(value.get("track") or "full"),
            verdict=str(verdict) if verdict else None,
            cases=tuple((str(case), str(result)) for case, result in cases.items()),
            plan=tuple((str(case), str(description)) for case, description in planned.items()),
            findings=tuple(map(str, findings)) if isinstance(findings, list) else (),
            schema_changes=str(value.get("schema_changes") or "no"),
        )

    def _planned(self) -> list[str]:
        plan = self._read(f"{self._brief.folder}/04-test-plan.yaml", missing="")
        return list(dict.fromkeys(CASE.findall(plan))) or ["TC-01"]

    def _replace(self, path: str, old: str, new: str) -> None:
        text = self._read(path)
        if old not in text:
            raise OutsideError(f"The script wants to replace text that {path} does not hold.")
        self._write(path, text.replace(old, new, 1))

    def _write(self, path: str, content: str) -> None:
        place = self._inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")
        self.written += len(content)
        self._say(f"wrote {path}")

    def _read(self, path: str, missing: str | None = None) -> str:
        place = self._inside(path)
        if missing is not None and not place.exists():
            return missing
        return place.read_text(encoding="utf-8")

    def _inside(self, path: str) -> Path:
        """The place of a path, which must lie in the worktree, links followed, and not in git's own folder."""
        place = (self._root / path).resolve()
        if not place.is_relative_to(self._root) or ".git" in place.relative_to(self._root).parts:
            raise OutsideError(f"The script names {path!r}, which is outside the worktree.")
        return place

    def _run(self, argv: Sequence[str]) -> None:
        done = self._processes.run(argv, cwd=self._root, env=os.environ, timeout=RUN_SECONDS)
        output = (done.stdout + done.stderr).decode(errors="replace").strip()
        self._say(f"ran {argv[0]}: exit code {done.returncode}" + (f"\n{output}" if output else ""))
        if done.returncode != 0:
            raise OutsideError(f"{argv[0]} failed with exit code {done.returncode}.")

    def _commit(self, message: str) -> None:
        self._run([*GIT, "add", "--all", "--", "."])
        staged = self._processes.run([*GIT, "diff", "--cached", "--quiet"], cwd=self._root, env=os.environ)
        if staged.returncode == 0:
            self._say("nothing to commit")
            return
        self._run([*GIT, "commit", "--quiet", "--no-verify", f"--message={message}"])

    def _say(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def main(argv: Sequence[str]) -> int:
    """The entry point: its exit code."""
    sys.stdout.write(GREETING + "\n")
    options = dict(zip(argv[1::2], argv[2::2], strict=False))
    brief = read_brief(Path(options.get("--brief", "")))
    if brief is None:
        sys.stderr.write("The brief cannot be read: give it with --brief FILE.\n")
        return 2
    player = Player(brief, Path.cwd(), SystemProcesses(), SystemClock())
    try:
        code = player.play(steps_for(_script(options.get("--script")), brief))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OrchestratorError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _write_usage(brief, player.written)
    return code


def _script(path: str | None) -> Script:
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The scripted agent's script {path} cannot be read: {error}.") from error
    return parse_script(text, path)


def _write_usage(brief: Brief, written: int) -> None:
    place = os.environ.get("ORCH_USAGE")
    if place:
        tokens = {
            "input_tokens": (len(brief.title) + len(brief.body)) // CHARS_PER_TOKEN + 1,
            "output_tokens": written // CHARS_PER_TOKEN,
            "cost_usd": 0.0,
            "model": "scripted",
            "summary": f"The scripted agent played the {brief.role.value}'s part of {brief.work_item}.",
        }
        Path(place).write_text(json.dumps(tokens), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
