"""The oracle sees it when something does not agree: each of these was done to a world in which all agreed."""

import json
import os
from collections.abc import Callable

import pytest

from tests.deliveries import plane_state
from tests.proofs import oracle
from tests.proofs.world import World


def merged_twice(world: World) -> None:
    git = world.forge.git
    main = git("rev-parse", "main")
    message = git("show", "-s", "--format=%B", main)
    who = ("-c", "user.name=X", "-c", "user.email=x@example.org")
    git("update-ref", "refs/heads/main", git(*who, "commit-tree", "main^{tree}", "-p", main, "-m", message))


def main_went_back(world: World) -> None:
    world.forge.git("update-ref", "refs/heads/main", "main^")


def merged_and_cancelled(world: World) -> None:
    world.unguard("tasks")
    world.change("UPDATE tasks SET stage = 'cancelled'")


def note(world: World, line: str) -> None:
    with (world.root / "deploys.log").open("a") as journal:
        journal.write(line)


def started_twice(world: World) -> None:
    note(world, (world.root / "deploys.log").read_text().splitlines(True)[0])


def started_without_an_intent(world: World) -> None:
    note(world, f"start production {'1' * 40} 1 deploy 99 sha256:0 {'1' * 40} S-1\n")


def an_older_version_was_started(world: World) -> None:
    older = world.forge.git("rev-parse", "main^")
    note(world, f"start production {older} 1 deploy 99 sha256:0 {older} S-1\n")


def another_version_runs(world: World) -> None:
    (world.root / "installed-production").write_text(world.forge.git("rev-parse", "main^"))


def artefact_was_changed(world: World) -> None:
    [path, *_] = (world.home / "images" / "objects").rglob("app.py")
    os.chmod(path, 0o644)
    path.write_text("TWO = 2\n")


def message_was_lost(world: World) -> None:
    (world.home / "tickets" / "S-1.jsonl").write_text("")


def delivery_was_lost(world: World) -> None:
    told = world.root / "post" / "told"
    told.mkdir(parents=True)
    letter = {"source": "plane", "kind": "issue", "payload": plane_state("Approved")}
    (told / "00001.json").write_text(json.dumps(letter))


def answer_was_lost(world: World) -> None:
    """A word was refused, and nobody told."""
    world.change(
        "INSERT INTO inbox (source, dedup_key, kind, task_id, received_at, handled_at, outcome) "
        "VALUES ('plane', 'plane:1', 'issue', 1, '2026-01-01', '2026-01-01', 'refused: no')",
    )
    world.change("INSERT INTO deliveries (inbox_id, source) SELECT max(id), 'plane' FROM inbox")


WRONGS: dict[Callable[[World], None], str] = {
    merged_twice: "one-merge",
    main_went_back: "main",
    merged_and_cancelled: "agreement",
    started_twice: "one-start",
    started_without_an_intent: "intent",
    an_older_version_was_started: "redeploy",
    another_version_runs: "production",
    artefact_was_changed: "image",
    message_was_lost: "message",
    delivery_was_lost: "letter",
    answer_was_lost: "answer",
    lambda world: world.change("DELETE FROM coverage_baseline"): "ratchet",
    lambda world: world.change("DELETE FROM events WHERE to_stage = 'deploy'"): "law-11",
    lambda world: world.change(
        "INSERT INTO slots VALUES ('merge:sample', 'sample', 'task', 1, '2026-01-01')"
    ): "slot",
    lambda world: world.change("UPDATE effects SET state = 'revoked' WHERE name = 'merge_pr'"): "ledger",
}


@pytest.mark.parametrize("wrong", WRONGS, ids=list(WRONGS.values()))
def test_what_does_not_agree_is_found(wrong: Callable[[World], None], delivered: World) -> None:
    assert oracle.at_the_end(delivered) == []
    delivered.unguard("effects", "effects_move_forward")
    wrong(delivered)
    kinds = {finding.split(":")[0] for finding in oracle.at_the_end(delivered)}
    assert WRONGS[wrong] in kinds


@pytest.mark.parametrize(("drawn", "started"), [(2, 2), (2, 3)])
def test_an_undo_that_was_drawn_with_a_start_is_intended_until_the_end(
    delivered: World, drawn: int, started: int
) -> None:
    """Its runner performs it before anybody can intend it; then the ledger has to have it by itself."""
    [init] = [start for start in oracle.Seen(delivered).starts if start.environment == "production"]
    delivered.unguard("effects", "effects_move_forward")
    [row] = delivered.rows(
        "SELECT key, evidence FROM effects WHERE key LIKE 'production:%' AND name = 'deploy_init'"
    )
    evidence = {**json.loads(row["evidence"]), "conditional_undo": {"judged": {"generation": drawn}}}
    written = json.dumps(evidence).replace("'", "''")
    delivered.change(f"UPDATE effects SET evidence = '{written}' WHERE key = '{row['key']}'")
    note(delivered, f"start production {init.sha} {started} undo 99 {init.digest} {init.sha} S-1\n")
    found = [any(one.startswith("intent") for one in look(delivered)) for look in LOOKS]
    assert found == [drawn != started, True]


LOOKS = (oracle.at_any_moment, oracle.at_the_end)
