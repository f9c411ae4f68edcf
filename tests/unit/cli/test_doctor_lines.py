"""What `orch doctor` prints."""

from orchestrator.cli.doctor import lines
from orchestrator.cli.findings import Finding, Level


def test_what_is_found_lines_up_however_long_the_names_are() -> None:
    told = lines(
        [
            Finding(Level.OK, "git", "version 2.39.5"),
            Finding(Level.NOTE, "agent scripted of a-repository", "0.1.0", "Nothing to do."),
        ]
    )
    assert told == [
        "ok  git                             version 2.39.5",
        "--  agent scripted of a-repository  0.1.0",
        "                                    Nothing to do.",
    ]
