"""The short form: hosts that are cut off, killed, paused, and a database that crashes, under a few tickets."""

from pathlib import Path

from tests.netns.fleet import play


def test_each_ticket_is_delivered_once_whatever_befalls_the_fleet(tmp_path: Path) -> None:
    told = play(tmp_path, seed=1, tickets=6, hosts=2, workers=2, disturbances=16)
    assert told["findings"] == []
    assert told["at_workers"]
    assert sum(told["done"].values()) >= 16  # type: ignore[attr-defined]
