"""One process owns the file; the lock dies with it (DESIGN §8)."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.db.file_lock import own_file
from orchestrator.domain.errors import DatabaseError, StateInUse

HOLDS = """
import signal, sys
from pathlib import Path
from orchestrator.db.file_lock import own_file
with own_file(Path(sys.argv[1]), role="serve"):
    print("held", flush=True)
    signal.pause()
"""


def test_a_second_owner_is_refused_by_name_and_the_lock_dies_with_the_first(tmp_path: Path) -> None:
    place = tmp_path / "orch.db"
    first = subprocess.Popen([sys.executable, "-c", HOLDS, str(place)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    with (
        pytest.raises(StateInUse, match=rf"in use by orch serve \(pid {first.pid}\)") as refusal,
        own_file(place, role="run"),
    ):
        pass
    assert "One process owns a state folder" in refusal.value.hint
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    with own_file(place, role="run"):
        assert f"orch run (pid {os.getpid()})" in (tmp_path / "orch.db.lock").read_text(encoding="utf-8")


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    """An agent that outlives us must not keep the state locked."""
    place = tmp_path / "orch.db"
    with own_file(place, role="serve"):
        child = subprocess.Popen(
            [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"],
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert child.stdout is not None
        child.stdout.readline()
    with own_file(place, role="serve"):
        assert child.poll() is None
    child.kill()
    child.wait()
    child.stdout.close()


def test_it_is_private_and_follows_no_link(tmp_path: Path) -> None:
    with own_file(tmp_path / "orch.db", role="serve"):
        assert stat.S_IMODE((tmp_path / "orch.db.lock").stat().st_mode) == 0o600
    (tmp_path / "other.db.lock").symlink_to(tmp_path / "target")
    with (
        pytest.raises(DatabaseError, match="cannot be used") as refusal,
        own_file(tmp_path / "other.db", role="serve"),
    ):
        pass
    assert "writable" in refusal.value.hint
    assert not (tmp_path / "target").exists()


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseError, match="No such file"),
        own_file(tmp_path / "no" / "orch.db", role="run"),
    ):
        pass


LEAVES_IT_TO_A_CHILD = """
import os, signal, sys
from pathlib import Path
from orchestrator.db.file_lock import own_file
with own_file(Path(sys.argv[1]), role="serve"):
    if os.fork() == 0:  # as a program has it between fork and exec
        print("held", flush=True)
        sys.stdin.read()
        os._exit(0)
    signal.pause()
"""


def test_lock_that_a_dead_owner_left_to_a_program_it_was_starting_is_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "orch.db"
    argv = [sys.executable, "-c", LEAVES_IT_TO_A_CHILD, str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "held\n"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        threading.Timer(0.2, first.stdin.close).start()
        with own_file(place, role="run"):
            pass


def test_processes_that_share_the_file_keep_a_single_owner_out(tmp_path: Path) -> None:
    place = tmp_path / "orch.db"
    with (
        own_file(place, role="run", shared=True),
        own_file(place, role="run", shared=True),
        pytest.raises(StateInUse),
        own_file(place, role="serve"),
    ):
        pass
