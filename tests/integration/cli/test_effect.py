"""``orch effect``: a person looks at what is not settled outside."""

import re

import httpx

from orchestrator.db import effects
from orchestrator.domain.effect import EffectName
from orchestrator.domain.stage import Stage
from tests.fixtures_desk import Desk, Serve
from tests.fixtures_orch import Here, Orch


def _unsettled(orch: Orch) -> None:
    desk = orch.desk()
    desk.repository()
    with desk.database.write() as tx:
        effects.next_sequence(tx)  # the ledger's numbers run ahead of the effects'
    desk.file()
    desk.move("SHOP-1", Stage.DEPLOY_STAGING)
    desk.effect("SHOP-1", EffectName.PUSH, "orch/shop-1:absent.." + "a" * 40)
    desk.effect("SHOP-1", EffectName.MERGE_PR, "b" * 40, settled=False)
    desk.database.close()


class TestListing:
    def test_lists_what_is_not_settled(self, here: Here, orch: Orch) -> None:
        _unsettled(orch)
        said = here("effect", "list")
        assert said.code == 0
        assert "merge_pr" in said.out and "SHOP-1" in said.out and "b" * 12 in said.out
        assert "push" not in said.out and "b" * 13 not in said.out
        assert "push" in here("effect", "list", "--all", "--task", "shop-1").out
        assert [e["name"] for e in here("effect", "list", "--json").data["effects"]] == ["merge_pr"]

    def test_says_when_there_is_none(self, here: Here, orch: Orch) -> None:
        orch.desk().database.close()
        assert "Every effect is settled" in here("effect", "list").out
        assert here("effect", "list", "--task", "SHOP-9").code == 2


class TestItsNumber:
    def test_a_task_shows_the_one_that_resolve_takes(self, here: Here, orch: Orch) -> None:
        _unsettled(orch)
        [listed] = here("effect", "list", "--json").data["effects"]
        shown = here("task", "show", "SHOP-1", "--json").data["effects"][1]
        assert listed["id"] == shown["effect_id"] != shown["sequence"]
        assert re.search(rf"^{listed['id']} +merge_pr", here("task", "show", "SHOP-1").out, re.MULTILINE)

    def test_the_board_shows_the_same(self, serve: Serve, desk: Desk) -> None:
        with desk.database.write() as tx:
            effects.next_sequence(tx)
        desk.file()
        desk.move("SHOP-1", Stage.DEPLOY_STAGING)
        intent = desk.effect("SHOP-1", EffectName.MERGE_PR, "b" * 40, settled=False)
        assert intent.effect_id != intent.sequence
        with httpx.Client(base_url=serve(), trust_env=False, timeout=60) as board:
            page = board.get("/board/SHOP-1").text
        assert f'<td class="num">{intent.effect_id}</td><td>merge_pr</td>' in page


class TestResolving:
    def test_a_word_is_stored_for_the_next_service(self, here: Here, orch: Orch) -> None:
        _unsettled(orch)
        number = str(here("effect", "list", "--json").data["effects"][0]["id"])
        said = here("effect", "resolve", number, "retry", "--reason", "lost", "--as", "Ada")
        assert said.code == 0
        assert f"retry of effect {number} is received" in said.out and "orch serve" in said.out
        told = here("task", "show", "SHOP-1", "--events", "--json").data["events"][-1]
        assert (told["data"]["person"], told["data"]["reason"]) == ("Ada", "lost")

    def test_a_number_that_is_none_is_named_as_what_it_is(self, here: Here) -> None:
        said = here("effect", "resolve", "abc", "applied", "--reason", "x")
        assert said.code == 2 and "'abc' is not a valid integer." in said.err

    def test_what_cannot_be_said_is_refused(self, here: Here, orch: Orch) -> None:
        _unsettled(orch)
        settled = here("effect", "list", "--all", "--json").data["effects"][1]["id"]
        for number, code in ((settled, 2), (404, 2)):
            said = here("effect", "resolve", str(number), "applied", "--reason", "so")
            assert said.code == code
            assert "settled" in said.err or "no effect 404" in said.err
        assert here("effect", "resolve", "1", "applied").code == 2
        assert here("effect", "resolve", "1", "perhaps", "--reason", "so").code == 2
