"""One side of ``./dev bench webhooks``: argv = kind and folder. Prints its address; ends when its input does.

``bare`` verifies a signature and stores nothing; ``stored`` is the product's door; ``service`` also deals with what
has arrived, as a running service does.
"""

import hmac
import sys
import threading
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from benchmarks.senders import SECRET
from orchestrator.config import Secret
from orchestrator.daemons.daemon import Loop
from orchestrator.daemons.inbox import Inbox
from orchestrator.db.migrate import init_db
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.ids import BootId
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.observability.telemetry import Telemetry
from orchestrator.operations.desk import Operations
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses
from orchestrator.runtime.waypoints import NoWaypoints
from orchestrator.transition_lease import Ownership
from orchestrator.web.api import create_api
from orchestrator.web.server import WebServer
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.intake import intakes
from orchestrator.webhooks.receiving import Receiver

HANDLERS = (GiteaHandler(),)


def bare() -> FastAPI:
    """What a person would write by hand who stores nothing."""
    app = FastAPI()

    @app.post("/webhooks/gitea")
    async def hook(request: Request) -> Any:
        wanted = hmac.digest(SECRET.encode(), await request.body(), "sha256").hex()
        if not hmac.compare_digest(wanted, request.headers["x-gitea-signature"]):
            return JSONResponse({"outcome": "refused"}, 403)
        return {"outcome": "verified"}

    return app


def product(folder: Path, *, dealing: bool) -> FastAPI:
    """The product's own application over a database on the disk."""
    clock, entropy, telemetry = SystemClock(), SystemEntropy(), Telemetry()
    folder.mkdir()
    path = folder / "orchestrator.db"
    init_db(path, clock=clock, entropy=entropy)
    database, arrived = SqliteDatabase(path, clock=clock), threading.Event()
    receiver = Receiver(database, HANDLERS, arrived=arrived.set, wake=lambda _: None, telemetry=telemetry)
    if dealing:
        term = Term(clock, 24 * 3600.0)
        term.renew(clock.boottime())
        ownership = Ownership(
            database, boot_id=BootId(entropy.token()), processes=SystemProcesses(), clock=clock,
            liveness=FinalizerLiveness(), term=term,
        )  # fmt: skip
        inbox = Inbox(
            database, ownership, HANDLERS, interval_s=15.0, wake=lambda _: None, entropy=entropy,
            waypoints=NoWaypoints(),
        )  # fmt: skip
        Loop(inbox, clock=clock, entropy=entropy, telemetry=telemetry, wake=arrived).start()
    signed = intakes(receiver, HANDLERS, secrets={"gitea": (Secret(SECRET),)}, telemetry=telemetry)
    return create_api(
        cast(Operations, None), token=None, ready=lambda: True, hosts=frozenset({"127.0.0.1"}),
        local_token=entropy.token(), signed=signed,
    )  # fmt: skip


def main(kind: str, folder: Path) -> None:
    app = bare() if kind == "bare" else product(folder, dealing=kind == "service")
    with WebServer(app, host="127.0.0.1", port=0) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
