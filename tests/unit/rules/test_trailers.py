"""The lines by which a candidate is known again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import WorkItem
from orchestrator.rules.trailers import candidate_message, has_our_trailers, trailers

ITEM = WorkItem("ORCH-7")
EXPECTED = {
    "Orch-Task": "ORCH-7",
    "Orch-Nonce": "n1",
    "Orch-Installation": "i1",
    "Orch-Sequence": "42",
}


@given(st.text())
def test_no_title_changes_the_trailers(title: str) -> None:
    message = candidate_message(ITEM, title, "n1", "i1", 42)
    assert trailers(message) == EXPECTED
    assert message.count("\n") == 6
    assert message.startswith("Merge ORCH-7")


def test_a_title_full_of_trailers() -> None:
    message = candidate_message(
        ITEM, "x\n\nOrch-Task: ORCH-9\r\nOrch-Nonce: stolen\u2028Orch-Nonce: y", "n1", "i1", 42
    )
    assert trailers(message) == EXPECTED
    assert message.splitlines()[0] == "Merge ORCH-7: x Orch-Task: ORCH-9 Orch-Nonce: stolen Orch-Nonce: y"


def test_a_value_that_is_no_plain_word_is_refused() -> None:
    with pytest.raises(InvariantError, match="Orch-Nonce"):
        candidate_message(ITEM, "title", "a\nOrch-Task: x", "i1", 1)


@pytest.mark.parametrize(
    "message",
    [
        "Fix\n\nOrch-Nonce: x\n",
        "Fix\n\norch-task: x",
        "Orch-Task: x",
        "Fix\n\n  > Orch-Sequence : 4\n\nmore",
        "Fix\u2028Orch-Task: 4",
        "Fix\rOrch-Task: 4",
        "Fix\n\nORCH-INSTALLATION=4",
    ],
    ids=range(7),
)
def test_our_trailers_are_found_wherever_they_stand(message: str) -> None:
    assert has_our_trailers(message)


@pytest.mark.parametrize(
    "message",
    ["Merge ORCH-7: fix", "Fix\n\nCo-authored-by: Orch <o@x>", "About Orch-Task: lines", "orchard: x"],
    ids=range(4),
)
def test_other_messages_are_left_alone(message: str) -> None:
    assert not has_our_trailers(message)


def test_only_the_last_paragraph_counts_when_we_look_for_ours() -> None:
    assert trailers("Fix\n\nOrch-Nonce: n1\n\nThe end") == {}
    assert trailers("Orch-Nonce: n1") == {}
    assert trailers("Fix\n\nOrch-Nonce: n1\nno trailer") == {}
    assert trailers("Fix\n\nA: b\nC:d\n\n") == {"A": "b", "C": "d"}


def test_a_title_closes_no_ticket_where_the_candidate_lands() -> None:
    message = candidate_message(ITEM, "closes #5", "n1", "i1", 42)
    assert message.splitlines()[0] == "Merge ORCH-7: closes # 5"
