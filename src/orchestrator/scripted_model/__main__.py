"""``python -m orchestrator.scripted_model [--scenarios DIR]... [--port N] [--log FILE]``: serve until
interrupted.

Prints one line ``{"port": N, "url": ...}`` when it listens.
"""

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from orchestrator.domain.errors import OrchestratorError
from orchestrator.scripted_model.server import ScriptedModel


def main(argv: list[str]) -> int:
    """The entry point: its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.scripted_model",
        description="A model server that follows a script, on loopback. It is no AI.",
    )
    parser.add_argument(
        "--scenarios", type=Path, action="append", help="folder of scenarios; may be repeated"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--log", type=Path, help="append one JSON line for each request")
    options = parser.parse_args(argv)
    ended = threading.Event()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        with ScriptedModel(options.scenarios, port=options.port, log=options.log) as model:
            sys.stdout.write(json.dumps({"port": model.port, "url": model.url()}) + "\n")
            sys.stdout.flush()
            ended.wait()
    except (OrchestratorError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
