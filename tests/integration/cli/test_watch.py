"""`orch watch`: the same story wherever the work is done."""

import signal

import pytest

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_orch import CONFIG, Here, Orch, ended

NO_AGENT = CONFIG.replace('kind = "scripted"', 'kind = "command"\ncommand = ["/nonexistent/agent"]')


def test_does_the_work_where_no_service_runs(orch: Orch) -> None:
    hand = orch.checkout()
    assert orch("init", cwd=hand.folder).code == 0
    assert orch("task", "add", "Add a line", "--label", "fast", cwd=hand.folder).code == 0
    said = orch("watch", "shop-1")
    assert said.code == 0, said.err
    assert "the service runs here" in said.out and "==> done" in said.out
    assert "git pull orch main" in said.out
    told = orch("watch", "SHOP-1", "--json")  # what has ended is told all the same
    assert told.data["exit_code"] == 0 and "==> done" in told.err


@pytest.mark.long
def test_watches_a_running_service(orch: Orch) -> None:
    hand = orch.checkout()
    assert orch("init", cwd=hand.folder).code == 0
    with orch.serving() as service:
        assert orch("task", "add", "Add a line", "--label", "fast", cwd=hand.folder).code == 0
        said = orch("watch", "SHOP-1")
        assert said.code == 0, said.err
        assert "the service runs already" in said.out and "==> done" in said.out
        assert ended(service).code == 0


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
def test_waits_for_what_comes_of_a_decision(orch: Orch) -> None:
    """A stored retry is acted on first: the escalation before it is not where the task rests."""
    place = orch.checkout(files={".orchestrator.toml": NO_AGENT}).folder
    assert orch("run", "Add a line", cwd=place).code == 1
    rested = orch("watch", "SHOP-1")
    assert rested.code == 1
    assert "\nSHOP-1 stands in " in rested.out
    why = orch("why", "SHOP-1").out
    assert "Then: orch task retry SHOP-1, or orch task cancel SHOP-1" in why
    assert orch("task", "cancel", "SHOP-1").code == 0
    said = orch("watch", "SHOP-1")
    assert said.code == 1
    assert "SHOP-1 is cancelled" in said.out


@pytest.mark.long
def test_an_interrupt_ends_the_watching_alone(orch: Orch) -> None:
    hand = orch.checkout(files={".orchestrator.toml": CONFIG.replace('"true"', '"sleep 60"')})
    assert orch("init", cwd=hand.folder).code == 0
    with orch.serving() as service:
        assert orch("task", "add", "First", "--label", "fast", cwd=hand.folder).code == 0
        with orch.started("watch", "SHOP-1") as process:
            assert process.stdout is not None
            while "==> development" not in process.stdout.readline():
                assert process.poll() is None
            said = ended(process, signal.SIGINT)
        assert said.code == 130, said.err
        assert "orch watch SHOP-1" in said.out and "Traceback" not in said.err
        assert service.poll() is None
        assert ended(service).code == 0


def test_after_a_broken_merge_the_guide_is_named_and_no_cancel(here: Here) -> None:
    hand = here.orch.checkout()
    assert here("init", cwd=hand.folder).code == 0
    assert here("task", "add", "Ship it", cwd=hand.folder).code == 0
    desk = here.orch.desk()
    desk.move("SHOP-1", Stage.DEPLOY)
    desk.hold("SHOP-1", Hold.ESCALATED, "production did not come back")
    desk.freeze("SHOP-1", "production did not come back")
    desk.database.close()
    said = here("watch", "SHOP-1")
    assert said.code == 1, said.err
    assert "orch unfreeze shop" in said.out and "docs/how-to/frozen-repository.md" in said.out
    assert "cancel" not in said.out


@pytest.mark.parametrize("task", ["SHOP-9", "../x"])
def test_an_unknown_task_is_named(here: Here, task: str) -> None:
    assert "nothing in" in here("watch", task).err
    assert here("init", cwd=here.orch.checkout().folder).code == 0
    said = here("watch", task)
    assert said.code == 2
    assert "There is no task" in said.err
