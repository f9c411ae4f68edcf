"""The README's promise: two commands, from a fresh clone."""

import re

from tests.project.checkout import ROOT


def test_the_first_code_block_is_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```[^\n]*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert block, "README.md has no code block"
    commands = [line.split("#", 1)[0].strip() for line in block[1].splitlines()]
    assert [command for command in commands if command] == ["./dev demo", "./dev test"]
