"""`orch init --check`: the configured checks, run once where nothing but the last commit is."""

import pytest

from tests.fixtures_git import Hand
from tests.fixtures_orch import Here, Orch


def checkout(orch: Orch, script: str, more: str = "") -> Hand:
    config = f"[ci]\ncommand = ['sh', '-c', '''{script}''']\n{more}"
    return orch.checkout(
        files={".orchestrator.toml": config, "kept.txt": "one\r\n", ".gitattributes": "* text=auto\n"}
    )


def test_checks_that_pass(here: Here, orch: Orch) -> None:
    """They run on the last commit's files alone, as they were committed, with the configured environment."""
    script = (
        'test "$COLOUR" = red && test "$CI" = true && test "$ORCH_SHA" = "$(git rev-parse HEAD)" && '
        'test ! -e loose.txt && grep -q one kept.txt && test -z "$(git status --porcelain)" && echo "Ran 10 tests"'
    )
    hand = checkout(orch, script, 'env = { COLOUR = "red" }\n')
    hand.write("loose.txt", "not committed")
    hand.write("kept.txt", "changed")
    said = here("init", "--check", "--json", cwd=hand.folder)
    assert said.code == 0, said.err
    assert said.data["check"] == {"passed": True, "said": "The checks pass on the last commit.", "tail": ""}
    assert hand.git("status", "--porcelain").splitlines() == ["M kept.txt", "?? loose.txt"]


def test_without_it_nothing_runs(here: Here, orch: Orch) -> None:
    hand = checkout(orch, f"touch {orch.folder}/ran")
    assert here("init", "--json", cwd=hand.folder).data["check"] is None
    assert not (orch.folder / "ran").exists()


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        ("echo broken; exit 3", "exit code 3"),
        ("echo Ran 0 tests in 0.000s; echo OK", "found no tests"),
        ("echo no tests ran in 0.01s; exit 5", "found no tests"),
        ("echo NO TESTS RAN; exit 5", "found no tests"),
    ],
)
def test_a_warning_and_no_failure(here: Here, orch: Orch, script: str, warning: str) -> None:
    said = here("init", "--check", cwd=checkout(orch, script).folder)
    assert said.code == 0, said.err
    assert "Warning: " in said.out and warning in said.out
    assert script.split(";")[0].removeprefix("echo ") in said.out


def test_a_program_that_does_not_exist(here: Here, orch: Orch) -> None:
    hand = orch.checkout(files={".orchestrator.toml": "[ci]\ncommand = ['no-such-program']\n"})
    said = here("init", "--check", cwd=hand.folder)
    assert said.code == 0, said.err
    assert "Warning: the checks cannot start: no-such-program" in said.out


def test_checks_that_never_end(here: Here, orch: Orch) -> None:
    hand = checkout(orch, "echo begun; exec tail -f /dev/null", "timeout = '1s'\n")
    said = here("init", "--check", "--json", cwd=hand.folder).data["check"]
    assert (said["passed"], said["tail"].strip()) == (False, "begun")
    assert "did not end within 1 s" in said["said"]


def test_the_guess_is_tried(here: Here, orch: Orch) -> None:
    test = (
        "import unittest\nimport shop\n\nclass T(unittest.TestCase):\n"
        "    def test_it(self):\n        self.assertEqual(shop.x, 1)\n"
    )
    files = {"setup.py": "", "src/shop/__init__.py": "x = 1\n", "tests/test_shop.py": test}
    hand = orch.checkout(files=files)
    said = here("init", "--check", "--json", cwd=hand.folder)
    assert said.data["wrote_config"]
    assert said.data["check"]["passed"], said.data["check"]
    text = (hand.folder / ".orchestrator.toml").read_text(encoding="utf-8")
    assert 'env = { PYTHONPATH = "src" }' in text
    assert '"-s", "tests"' in text


def test_a_linked_worktree(here: Here, orch: Orch) -> None:
    hand = checkout(orch, "test -e kept.txt")
    other = Hand(orch.folder / "other")
    hand.git("worktree", "add", "-q", "-b", "side", str(other.folder))
    said = here("init", "--check", "--json", cwd=other.folder)
    assert said.code == 0, said.err
    assert said.data["check"]["passed"]
