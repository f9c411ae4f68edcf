"""Commands on a state that nobody else owns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.db import tasks
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_desk import Desk
from tests.fixtures_git import Hand
from tests.fixtures_orch import CONFIG, Here, Orch

ORCH = (sys.executable, "-m", "orchestrator")


@pytest.fixture
def shop(here: Here, orch: Orch) -> Here:
    """Commands inside a registered checkout."""
    said = here("init", cwd=orch.checkout().folder)
    assert said.code == 0, said.err
    return here


class TestAnEmptyHome:
    """Nothing is there yet: what is refused leaves nothing behind."""

    @pytest.mark.parametrize(
        "words",
        [
            ("task", "add", "x"),
            ("task", "add", "x", "--repo", "shop"),
            ("task", "approve", "SHOP-1"),
            ("task", "cancel", "a\udcffb"),
            ("effect", "resolve", "7", "applied", "--reason", "x"),
            ("lease", "release", "SHOP-1", "--reason", "x"),
            ("unfreeze", "shop"),
            ("restore", "accept", "--reason", "x"),
            ("run", "x"),
            ("run", "x", "--repo", "nowhere"),
            ("init", "--name", "No Name!"),
            ("init", "--prefix", "-"),
            ("init", "../nowhere"),
        ],
        ids=" ".join,
    )
    def test_stays_empty_where_a_command_is_refused(
        self, here: Here, orch: Orch, words: tuple[str, ...]
    ) -> None:
        place = orch.checkout(files={"x": "x"}).folder
        said = here(*words, cwd=place)
        assert said.code == 2, said.err
        assert not orch.home.exists()


class TestFiling:
    def test_files_and_says_what_comes_next(self, shop: Here) -> None:
        said = shop("task", "add", "Add a basket", "--body", "With a sum.", "--label", "fast")
        assert said.code == 0
        assert "SHOP-1 is filed" in said.out and "orch serve" in said.out
        story = shop("task", "show", "SHOP-1", "--json").data
        assert story["task"]["body"] == "With a sum." and story["task"]["labels"] == ["fast"]

    @pytest.mark.parametrize("title", ["", "   ", "\t\n"], ids=range(3))
    @pytest.mark.parametrize("command", [("task", "add"), ("run",)], ids=["add", "run"])
    def test_an_empty_title_is_refused(self, shop: Here, command: tuple[str, ...], title: str) -> None:
        said = shop(*command, title)
        assert said.code == 2
        assert "no title" in said.err
        assert shop("task", "list", "--json").data["tasks"] == []

    def test_a_huge_title_is_refused(self, shop: Here) -> None:
        assert shop("task", "add", "x" * 5001).code == 2

    def test_bytes_that_are_no_text_are_refused(self, shop: Here) -> None:
        said = shop("task", "add", "a\udcffb")
        assert said.code == 2
        assert "UTF-8" in said.err

    def test_text_comes_from_a_file(self, shop: Here, tmp_path: Path) -> None:
        text = tmp_path / "text.md"
        text.write_bytes("\ufeffПривет\r\n".encode())
        assert shop("task", "add", "x", "--body-file", str(text)).code == 0
        assert shop("task", "show", "SHOP-1", "--json").data["task"]["body"] == "Привет\r\n"
        text.write_bytes(b"\xff\xfe\x00")
        assert shop("task", "add", "x", "--body-file", str(text)).code == 2
        assert shop("task", "add", "x", "--body-file", str(tmp_path / "none")).code == 2
        assert shop("task", "add", "x", "--body", "y", "--body-file", str(text)).code == 2

    def test_one_ticket_of_elsewhere_is_one_task(self, shop: Here) -> None:
        for _ in range(2):
            said = shop("task", "add", "Once", "--external-id", "T-7", "--json")
            assert said.data["work_item"] == "SHOP-1"

    def test_what_it_depends_on_must_exist(self, shop: Here) -> None:
        assert shop("task", "add", "x", "--depends-on", "SHOP-9").code == 2
        assert shop("task", "list", "--json").data["tasks"] == []

    def test_a_ticket_depends_on_another_one_and_once(self, shop: Here) -> None:
        said = shop("task", "add", "x", "--depends-on", "SHOP-1")  # the number that it would get itself
        assert (said.code, "does not exist" in said.err) == (2, True)
        assert shop("task", "add", "x").code == 0
        assert shop("task", "add", "y", "--depends-on", "SHOP-1", "--depends-on", "shop-1").code == 0

    def test_the_repository_is_named_or_found(self, shop: Here, orch: Orch) -> None:
        assert shop("task", "add", "x", "--repo", "shop").code == 0
        said = shop("task", "add", "x", "--repo", "shp")
        assert said.code == 2
        assert "Did you mean shop?" in said.err
        assert shop("task", "add", "x", cwd=orch.folder).code == 0  # the only one there is
        other = orch.checkout("other", files={".orchestrator.toml": CONFIG, "x": "x"})
        assert shop("init", cwd=other.folder).code == 0
        said = shop("task", "add", "x", cwd=orch.folder)
        assert said.code == 2
        assert "--repo" in said.err

    def test_a_folder_that_is_not_registered_says_why(self, shop: Here, orch: Orch) -> None:
        """Another repository being registered, even as the only one, is not what a person here means."""
        other = orch.checkout("other", files={"x": "x"})
        said = shop("task", "add", "x", cwd=other.folder)
        assert said.code == 2 and "other is not registered" in said.err and "orch init" in said.err
        other.git("switch", "-q", "--detach")
        unborn = orch.folder / "unborn"
        unborn.mkdir()
        Hand(unborn).git("init", "-q", "-b", "main")
        for command in (("task", "add", "x"), ("run", "x")):
            for place, why in ((other.folder, "no branch checked out"), (unborn, "no commit yet")):
                said = shop(*command, cwd=place)
                assert said.code == 2
                assert why in said.err and "`orch init`" in said.err and "--repo: shop" in said.err
        third = orch.checkout("third")
        assert shop("init", cwd=third.folder).code == 0
        for command in (("task", "add", "x"), ("run", "x")):
            said = shop(*command, cwd=orch.folder)
            assert said.code == 2
            assert "no git repository" in said.err and "`orch init`" in said.err
        assert shop("task", "list", "--json").data["tasks"] == []

    def test_a_ticket_reaches_no_shell_and_no_terminal(self, shop: Here, orch: Orch) -> None:
        canary = orch.folder / "canary"
        hostile = (
            f"$(touch {canary}) `touch {canary}`; touch {canary} %s%n \x1b]0;x\x07 \u202e --upload-pack=x"
        )
        assert shop("task", "add", "--", hostile).code == 0
        for command in (
            ("task", "list"),
            ("task", "show", "SHOP-1", "--events"),
            ("why", "SHOP-1"),
            ("queue",),
        ):
            said = shop(*command)
            assert said.code == 0
            assert not set("\x1b\x07\u202e") & set(said.out)
        assert shop("task", "show", "SHOP-1", "--json").data["task"]["title"] == hostile
        assert not canary.exists()


class TestLooking:
    @pytest.mark.parametrize(
        "command",
        [
            ("task", "list"),
            ("task", "list", "--all"),
            ("task", "show", "SHOP-1"),
            ("task", "show", "SHOP-1", "--events", "--documents"),
            ("queue",),
            ("why", "SHOP-1"),
            ("lease", "list"),
            ("pipeline",),
            ("doctor",),
            ("init",),
            ("task", "add", "Another"),
            ("task", "cancel", "SHOP-1"),
            ("task", "retry", "SHOP-1"),
            ("task", "reject", "SHOP-1", "--reason", "no"),
            ("unfreeze", "shop"),
        ],
        ids=" ".join,
    )
    def test_json_is_one_document(self, shop: Here, command: tuple[str, ...]) -> None:
        shop("task", "add", "Add a basket")
        said = shop(*command, "--json")
        assert said.code == 0, said.err
        assert isinstance(said.data, dict)
        assert shop(*command).code == 0

    @pytest.mark.parametrize(
        "command",
        [("task", "show"), ("why",), ("task", "approve"), ("task", "retry"), ("task", "cancel")],
        ids=" ".join,
    )
    @pytest.mark.parametrize(
        "task", ["SHOP-99", "../../etc/passwd", "", "'; DROP TABLE tasks; --"], ids=range(4)
    )
    def test_an_unknown_task_is_named(self, shop: Here, command: tuple[str, ...], task: str) -> None:
        said = shop(*command, task)
        assert said.code == 2
        assert "There is no task" in said.err and "orch task list" in said.err

    @pytest.mark.parametrize(
        "command",
        [
            ("why", "\udcff"),
            ("task", "show", "\udcff"),
            ("task", "retry", "\udcff"),
            ("watch", "\udcff"),
            ("lease", "release", "\udcff", "--reason", "x"),
            ("unfreeze", "\udcff"),
            ("task", "list", "--after", str(2**63)),
            ("task", "list", "--all", "--before", "9" * 30),
            ("effect", "list", "--before", "9" * 30),
        ],
        ids=range(9),
    )
    def test_what_no_database_could_hold_is_refused(self, shop: Here, command: tuple[str, ...]) -> None:
        said = shop(*command)
        assert (said.code, said.err.startswith("orch: Invalid value")) == (2, True)

    def test_a_task_may_be_typed_in_small_letters(self, shop: Here) -> None:
        shop("task", "add", "Add a basket")
        assert shop("why", "shop-1").out.startswith("SHOP-1 ")
        assert shop("task", "show", "shop-1").code == shop("task", "cancel", "Shop-1").code == 0
        assert shop("task", "add", "Then", "--depends-on", "shop-1").code == 0

    @pytest.mark.parametrize(
        ("hold", "told"),
        [(None, True), (Hold.BLOCKED, True), (Hold.ESCALATED, False), (Hold.PERSON, False)],
        ids=str,
    )
    def test_a_task_that_waits_for_work_names_the_service(
        self, shop: Here, orch: Orch, hold: Hold | None, told: bool
    ) -> None:
        shop("task", "add", "Add a basket")
        if hold is not None:
            desk = orch.desk()
            desk.hold("SHOP-1", hold, "because")
            desk.database.close()
        for command in (("why", "SHOP-1"), ("queue",)):
            assert ("No service is running" in shop(*command).out) is told

    def test_the_whole_story_is_told_however_long(self, shop: Here, orch: Orch) -> None:
        shop("task", "add", "Add a basket")
        with_desk = orch.desk()
        for number in range(620):
            with_desk.hold("SHOP-1", Hold.BLOCKED, f"reason {number}")
        with_desk.database.close()
        events = shop("task", "show", "SHOP-1", "--events", "--json").data["events"]
        assert len(events) == 621
        assert len({event["id"] for event in events}) == 621

    def test_the_pipeline_is_printed_whole(self, here: Here) -> None:
        told = here("pipeline", "--json").data
        assert list(told) == [stage.value for stage in Stage]
        assert here("pipeline", "--mermaid").out.startswith("stateDiagram-v2")
        assert "check_production" in here("pipeline").out

    def test_doctor_finds_what_is_wrong(self, shop: Here, orch: Orch) -> None:
        place = orch.folder / "shop"
        config = CONFIG.replace('kind = "scripted"', 'kind = "claude"\ncommand = ["/nonexistent/claude"]') + (
            '[image]\ncommand = ["true"]\nartifact = "dist"\nrebuild = true\n'
            '[staging]\nname = "s"\ndeploy = ["true"]\n[staging.probe]\nurl = "http://127.0.0.1:1/"\n'
        )
        (place / ".orchestrator.toml").write_text(config, encoding="utf-8")
        Hand(place).commit("Break it")
        assert shop("init", cwd=place).code == 0
        found = {f["about"]: f for f in shop("doctor", "--json").data["findings"]}
        assert found["agent claude of shop"]["level"] == "failed"
        assert "not the tested one" in found["shop image"]["text"]
        assert "start-only" in found["shop staging"]["text"]
        assert found["git"]["level"] == "ok"

    def test_doctor_says_how_a_commit_comes_to_the_forge(self, here: Here, orch: Orch) -> None:
        place = orch.checkout(files={}).folder
        assert here("init", cwd=place).code == 0
        lacking = {f["about"]: f for f in here("doctor", "--json", cwd=place).data["findings"]}["shop"]
        assert lacking["level"] == "warning" and "is not committed" in lacking["hint"]
        (place / ".orchestrator.toml").write_text(CONFIG, encoding="utf-8")
        Hand(place).commit("Say how to check it")
        found = {f["about"]: f for f in here("doctor", "--json", cwd=place).data["findings"]}
        assert "git push orch main" in found["shop"]["hint"]
        Hand(place).git("push", "-q", "orch", "main")
        found = {f["about"]: f for f in here("doctor", "--json", cwd=place).data["findings"]}
        assert found["shop"]["level"] == "ok"

    @pytest.mark.parametrize(
        ("backstop", "warned"), [("29m", True), ("30m", True), ("59m", True), ("1h", False)]
    )
    def test_doctor_compares_time_outs_with_the_backstop(
        self, shop: Here, orch: Orch, monkeypatch: pytest.MonkeyPatch, backstop: str, warned: bool
    ) -> None:
        place = orch.folder / "shop"
        config = CONFIG.replace("[agent]", 'timeout = "30m"\n[agent]')
        config += '[agents.reviewer]\nkind = "scripted"\ntimeout = "1h"\n'
        (place / ".orchestrator.toml").write_text(config, encoding="utf-8")
        Hand(place).commit("Take longer")
        assert shop("init", cwd=place).code == 0
        monkeypatch.setenv("ORCH_REAPER_MAX_RUNNING_S", backstop)
        found = [f for f in shop("doctor", "--json").data["findings"] if f["about"] == "shop time-outs"]
        assert [f["level"] for f in found] == (["warning"] if warned else [])
        if found:
            assert "reviewer" in found[0]["text"] and "ORCH_REAPER_MAX_RUNNING_S" in found[0]["hint"]
            assert ("[ci]" in found[0]["text"]) is (backstop == "29m")

    def test_doctor_works_before_there_is_anything(self, here: Here, orch: Orch) -> None:
        assert here("doctor").code == 0
        assert not orch.home.exists()


class TestDeciding:
    def test_a_decision_is_stored_for_the_next_service(self, shop: Here) -> None:
        shop("task", "add", "x")
        said = shop("task", "cancel", "SHOP-1", "--reason", "not needed", "--as", "Ada", "--json")
        assert said.data["outcome"] is None and said.data["served"] is False
        event = shop("task", "show", "SHOP-1", "--json").data["events"][-1]
        assert (event["data"]["person"], event["data"]["reason"]) == ("Ada", "not needed")

    def test_what_does_not_fit_is_refused(self, shop: Here) -> None:
        shop("task", "add", "x")
        said = shop("task", "approve", "SHOP-1")
        assert said.code == 2
        assert "nothing waits for an approval" in said.err

    @pytest.mark.parametrize("option", ["--sha", "--subject"])
    def test_it_names_what_was_seen(self, shop: Here, orch: Orch, option: str) -> None:
        """Given for a commit that is not on show any more, it is refused and nothing is stored."""
        shop("task", "add", "x")
        desk: Desk = orch.desk()
        task = desk.move("SHOP-1", Stage.ANALYSIS)
        with desk.database.write() as tx:
            tasks.set_head(tx, task.id, Sha("b" * 40))
        desk.database.close()
        assert shop("why", "SHOP-1", "--json").data["subject"] == "b" * 40
        for seen, words in (("a" * 12, "b" * 12), ("bbb", "at least 7"), ("main", "at least 7")):
            said = shop("task", "approve", "SHOP-1", option, seen)
            assert (said.code, words in said.err) == (2, True), said.err
        assert shop("task", "approve", "SHOP-1", option, "b" * 12).code == 0

    def test_a_rejection_wants_a_reason(self, shop: Here) -> None:
        shop("task", "add", "x")
        assert shop("task", "reject", "SHOP-1").code == 2

    def test_a_freeze_is_lent_to_a_task(self, shop: Here, orch: Orch) -> None:
        shop("task", "add", "x")
        shop("task", "add", "The fix")
        desk: Desk = orch.desk()
        desk.freeze("SHOP-1", "broken")
        desk.database.close()
        said = shop("unfreeze", "shop", "--for", "shop-2", "--json")
        assert said.data == {"repo": "shop", "lifted": False, "lent_to": "SHOP-2"}
        assert "stays frozen" in shop("unfreeze", "shop", "--for", "SHOP-2").out
        frozen = next(line for line in shop("queue").out.splitlines() if "broken" in line)
        assert frozen.split()[:4] == ["shop", "SHOP-1", "SHOP-2", "(freeze)"]
        assert shop("unfreeze", "shop", "--for", "SHOP-9").code == 2
        assert "what broke" in shop("unfreeze", "shop", "--for", "SHOP-1").err

    def test_a_freeze_is_lifted_once(self, shop: Here, orch: Orch) -> None:
        shop("task", "add", "x")
        desk: Desk = orch.desk()
        desk.freeze("SHOP-1", "broken")
        desk.database.close()
        assert "broken" in shop("queue").out
        assert "delivers again" in shop("unfreeze", "shop").out
        assert "was not frozen" in shop("unfreeze", "shop").out
        refused = shop("unfreeze", "shop", "--for", "SHOP-1")
        assert (refused.code, "nothing to lend" in refused.err) == (2, True)
        assert shop("unfreeze", "nowhere").code == 2


class TestState:
    def test_it_is_private(self, shop: Here, orch: Orch) -> None:
        shop("task", "add", "x")
        assert orch.home.stat().st_mode & 0o077 == 0
        for place in orch.home.glob("orchestrator.db*"):
            assert place.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("command", [("init",), ("serve",), ("run", "x")], ids=" ".join)
    def test_a_folder_that_cannot_be_written_is_3(
        self, here: Here, orch: Orch, command: tuple[str, ...]
    ) -> None:
        hand = orch.checkout()
        closed = orch.folder / "closed"
        closed.mkdir(mode=0o500)
        # Modes do not stop root; the kernel's own file system does.
        here.monkeypatch.setenv("ORCH_HOME", "/proc/orch" if os.getuid() == 0 else str(closed / "state"))
        said = here(*command, cwd=hand.folder)
        assert said.code == 3
        assert said.err.startswith("orch: ") and "Traceback" not in said.err

    @pytest.mark.parametrize("more", [(), ("--json",)], ids=["for people", "json"])
    def test_what_is_done_is_not_to_be_repeated_for_want_of_a_place_to_say_it(
        self, shop: Here, orch: Orch, more: tuple[str, ...]
    ) -> None:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*ORCH, "task", "add", "Once", "--repo", "shop", *more],
                env=orch.environ, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False,
            )  # fmt: skip
        assert len(shop("task", "list", "--json").data["tasks"]) == 1
        assert (done.returncode, "No space left" in done.stderr, "repeat the command" in done.stderr) == (
            3,
            True,
            False,
        )

    @pytest.mark.of_the_file
    def test_a_write_protected_folder_is_named(self, shop: Here, orch: Orch) -> None:
        orch.home.chmod(0o500)
        try:
            if os.getuid() == 0:  # whom modes do not stop: without the right to pass over them
                done = subprocess.run(
                    ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *ORCH, "task", "list"],
                    env=orch.environ, capture_output=True, text=True, timeout=300, check=False,
                )  # fmt: skip
                code, err = done.returncode, done.stderr
            else:
                said = shop("task", "list")
                code, err = said.code, said.err
        finally:
            orch.home.chmod(0o700)
        assert code == 3, err
        assert f"{orch.home} cannot be read" in err and "ORCH_HOME" in err

    @pytest.mark.of_the_file
    def test_a_file_that_is_no_database_is_refused(self, here: Here, orch: Orch) -> None:
        orch.home.mkdir(mode=0o700)
        (orch.home / "orchestrator.db").write_bytes(b"no database" * 500)
        assert here("task", "list").code == 3
        said = here("init", cwd=orch.checkout().folder)
        assert said.code == 2
        assert "ORCH_DATABASE_URL" in said.err
