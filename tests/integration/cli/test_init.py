"""`orch init`: what it finds, what it refuses, and that it may be called again."""

from pathlib import Path

import pytest

from tests.fixtures_git import Hand
from tests.fixtures_orch import CONFIG, Here, Orch


class TestRefusals:
    @pytest.mark.parametrize("option", [("--name", "other"), ("--prefix", "OTH")], ids=["name", "prefix"])
    def test_a_registered_repository_keeps_its_name(
        self, here: Here, orch: Orch, option: tuple[str, str]
    ) -> None:
        place = orch.checkout().folder
        assert here("init", cwd=place).code == 0
        said = here("init", *option, cwd=place)
        assert said.code == 2
        assert "registered as shop with the prefix SHOP already" in said.err
        assert here("init", "--name", "shop", "--prefix", "shop", cwd=place).code == 0

    def test_no_folder(self, here: Here, tmp_path: Path) -> None:
        said = here("init", str(tmp_path / "nowhere"))
        assert said.code == 2
        assert "no folder" in said.err

    def test_no_repository(self, here: Here, tmp_path: Path) -> None:
        said = here("init", str(tmp_path))
        assert said.code == 2
        assert "no git repository" in said.err and "git init" in said.err

    def test_an_unborn_branch(self, here: Here, tmp_path: Path) -> None:
        place = tmp_path / "unborn"
        place.mkdir()
        Hand(place).git("init", "-q", "-b", "main")
        said = here("init", str(place))
        assert said.code == 2
        assert "no commit yet" in said.err

    def test_a_detached_head(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        hand.git("checkout", "-q", "--detach")
        said = here("init", cwd=hand.folder)
        assert said.code == 2
        assert "no branch checked out" in said.err

    def test_a_bare_repository(self, here: Here, tmp_path: Path) -> None:
        place = tmp_path / "bare.git"
        place.mkdir()
        Hand(place).git("init", "-q", "--bare")
        assert here("init", str(place)).code == 2

    @pytest.mark.parametrize(
        "text",
        [
            'default_branch = "main"\n',
            "[ci]\ncommand = []\n",
            "[ci]\ncomand = ['x']\n",
            "no toml at all [",
            "\0",
        ],
        ids=["no CI", "empty CI", "misspelt", "no TOML", "NUL"],
    )
    def test_a_configuration_that_cannot_be_used(self, here: Here, orch: Orch, text: str) -> None:
        hand = orch.checkout(files={".orchestrator.toml": text})
        said = here("init", cwd=hand.folder)
        assert said.code == 2
        assert ".orchestrator.toml" in said.err
        assert not orch.home.exists()

    @pytest.mark.parametrize(
        "option", [("--name", "../up"), ("--prefix", "1X"), ("--name", "")], ids=range(3)
    )
    def test_names_that_lead_elsewhere(self, here: Here, orch: Orch, option: tuple[str, str]) -> None:
        hand = orch.checkout()
        assert here("init", *option, cwd=hand.folder).code == 2

    def test_a_name_that_is_taken(self, here: Here, orch: Orch) -> None:
        here("init", cwd=orch.checkout("one").folder)
        other = orch.checkout("two", files={"README.md": "another\n"})
        said = here("init", "--name", "one", cwd=other.folder)
        assert said.code == 2
        assert "belongs to another repository" in said.err


class TestGoing:
    def test_writes_and_registers(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout(files={"pyproject.toml": "[tool.pytest]\n", "tests/test_x.py": ""})
        said = here("init", "--json", cwd=hand.folder)
        assert said.code == 0, said.err
        assert said.data["wrote_config"] and said.data["registered_now"] and not said.data["config_committed"]
        text = (hand.folder / ".orchestrator.toml").read_text(encoding="utf-8")
        assert "pytest" in text and text.startswith("#")
        assert hand.git("remote", "get-url", "orch") == said.data["forge"]

    def test_changes_nothing_the_second_time(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout(files={"Makefile": "test:\n\ttrue\n"})
        first = here("init", "--json", cwd=hand.folder).data
        (hand.folder / ".orchestrator.toml").write_text(CONFIG, encoding="utf-8")
        second = here("init", "--json", cwd=hand.folder).data
        assert (second["repository"], second["forge"]) == (first["repository"], first["forge"])
        assert not second["wrote_config"] and not second["registered_now"]
        assert (hand.folder / ".orchestrator.toml").read_text(encoding="utf-8") == CONFIG

    def test_works_from_a_folder_inside(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout(files={"src/deep/x.py": ""})
        assert here("init", "--json", cwd=hand.folder / "src" / "deep").data["checkout"] == str(hand.folder)

    def test_finds_its_registration_again_without_the_remote(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        first = here("init", "--json", cwd=hand.folder).data
        hand.git("remote", "remove", "orch")
        second = here("init", "--json", cwd=hand.folder).data
        assert second["forge"] == first["forge"] and not second["registered_now"]

    def test_two_folders_of_one_name_are_two_repositories(self, here: Here, orch: Orch) -> None:
        (orch.folder / "a").mkdir()
        (orch.folder / "b").mkdir()
        one = orch.checkout("a/shop")
        two = orch.checkout("b/shop", files={"other.txt": "other\n"})
        names = [here("init", "--json", cwd=hand.folder).data for hand in (one, two)]
        assert [(n["repository"], n["prefix"]) for n in names] == [("shop", "SHOP"), ("shop-2", "SHOP2")]

    @pytest.mark.parametrize("name", ["Мой магазин", "-rf", "a b;touch x", "99"], ids=range(4))
    def test_any_folder_name_will_do(self, here: Here, orch: Orch, name: str) -> None:
        hand = orch.checkout(name)
        said = here("init", "--json", cwd=hand.folder)
        assert said.code == 0, said.err
        assert said.data["repository"].replace("-", "").isalnum()

    def test_says_what_is_not_committed(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        hand.write("README.md", "changed\n")
        assert "1 files differ" in here("init", cwd=hand.folder).out

    def test_brings_the_forge_up_to_date(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        forge = Hand(Path(here("init", "--json", cwd=hand.folder).data["forge"]))
        newest = hand.commit("More", {"x.txt": "x\n"})
        assert "Pushed main" in here("init", cwd=hand.folder).out
        assert forge.git("rev-parse", "main") == newest

    def test_says_that_the_forge_is_ahead(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        here("init", cwd=hand.folder)
        hand.commit("More", {"x.txt": "x\n"})
        here("init", cwd=hand.folder)
        hand.git("reset", "-q", "--hard", "HEAD~1")
        assert "git pull orch main" in here("init", cwd=hand.folder).out
        hand.commit("Apart", {"y.txt": "y\n"})
        assert "gone apart" in here("init", cwd=hand.folder).out

    def test_runs_no_hook_of_the_checkout(self, here: Here, orch: Orch) -> None:
        hand = orch.checkout()
        here("init", cwd=hand.folder)
        canary = orch.folder / "canary"
        for hook in ("pre-push", "post-checkout", "reference-transaction"):
            place = hand.write(f".git/hooks/{hook}", f"#!/bin/sh\ntouch {canary}\n")
            place.chmod(0o755)
        hand.git("config", "core.fsmonitor", f"touch {canary}")
        (hand.folder / "x.txt").write_text("x", encoding="utf-8")
        hand.git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "add", "-A")
        hand.git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "commit", "-qm", "x")
        canary.unlink(missing_ok=True)
        assert "Pushed" in here("init", cwd=hand.folder).out
        assert not canary.exists()
