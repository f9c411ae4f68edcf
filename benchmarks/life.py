"""``orch serve`` that says when its imports were behind it, by CLOCK_BOOTTIME; for ``./dev bench recovery``.

The command, and the libraries of the web, import what they need when they are called: here everything is there before
the clock is read. With a file named in ``BENCH_PROFILE`` where the main thread's time went is written there when the
service has started.
"""

import cProfile
import importlib
import os
import pstats
import sys
import time

from orchestrator.cli.entry import run
from orchestrator.main import Service

EVERYTHING = (
    "_strptime",
    "importlib.resources.readers",
    "orchestrator.cli.http",
    "orchestrator.cli.serve",
    "orchestrator.db.postgres",
    "orchestrator.db.postgres_signals",
    "orchestrator.web.quiet_server",
    "pydantic.v1",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)


def _profiled(place: str) -> None:
    start, profile = Service.start, cProfile.Profile()

    def timed(self: Service) -> None:
        profile.runcall(start, self)
        with open(place, "w", encoding="utf-8") as file:
            pstats.Stats(profile, stream=file).sort_stats("cumtime").print_stats(60)
            pstats.Stats(profile, stream=file).sort_stats("tottime").print_stats(40)

    Service.start = timed  # type: ignore[method-assign]


if __name__ == "__main__":
    if "BENCH_PROFILE" in os.environ:
        _profiled(os.environ["BENCH_PROFILE"])
    for name in EVERYTHING:
        importlib.import_module(name)
    print(time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
    sys.exit(run(["serve"]))
