"""The tutorial, command by command, as a reader with nothing but git and Python would do it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project.checkout import ROOT
from tests.waiting import PATIENCE_S, wait_until

TUTORIAL = ROOT / "docs" / "tutorial" / "first-ticket.md"
BLOCK = re.compile(r"^```sh([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDER_MARK = "\n__folder__ "


class Reader:
    """Types blocks into a shell: each begins in the folder where the one before ended."""

    def __init__(self, home: Path) -> None:
        (home / "bin").mkdir()
        orch = home / "bin" / "orch"
        orch.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orchestrator "$@"\n', encoding="utf-8")
        orch.chmod(0o755)
        (home / ".gitconfig").write_text(
            "[user]\n\tname = Ada\n\temail = ada@example.org\n", encoding="utf-8"
        )
        python = Path(sys.executable).parent
        self.env = {
            "HOME": str(home),
            "PATH": f"{home / 'bin'}:{python}:/usr/local/bin:/usr/bin:/bin",
            "ORCH_PORT": "0",  # other tests may serve as well
        }
        self.folder = home
        self.service: subprocess.Popen[bytes] | None = None

    def type(self, commands: str) -> "Typed":
        done = subprocess.run(
            ["sh", "-c", f'set -e\n{commands}\nprintf "{FOLDER_MARK}%s" "$PWD"'.replace("\n__", "\\n__")],
            cwd=self.folder,
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        output, mark, folder = done.stdout.rpartition(FOLDER_MARK)
        if mark:
            self.folder = Path(folder)
        return Typed(done.returncode, (output if mark else done.stdout) + done.stderr)

    def serve(self, commands: str) -> None:
        self.service = subprocess.Popen(
            ["sh", "-c", f"exec {commands.strip()}"],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self.service is not None:
            self.service.terminate()
            self.service.wait(PATIENCE_S)


class Typed(NamedTuple):
    code: int
    output: str


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.stop()


def test_every_command_does_what_the_tutorial_says(reader: Reader) -> None:
    blocks = [(kind.strip(), text) for kind, text in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))]
    said = ""
    for kind, text in blocks:
        if kind == "service":
            reader.serve(text)
        elif kind.startswith("until "):
            words = kind.split()[1:]
            wait_until(lambda text=text, words=words: all(w in reader.type(text).output for w in words))
        else:
            typed = reader.type(text)
            assert (typed.code != 0) is (kind == "fails"), f"{text}\n{typed.output}"
            said += typed.output
    assert "Ready to work." in said, said
    assert "GREET-1 is done" in said
    assert 'return f"Good day, {name}!"' in said
    assert "escalated" in said
    assert said.rstrip().endswith("Good day, world!")
    assert sorted(os.listdir(reader.folder / "docs" / "work-items")) == ["GREET-1", "GREET-2"]
