"""What a running service answers over HTTP."""

from pathlib import Path

from orchestrator.config import Secret
from orchestrator.dashboard.pages import OPEN_PATHS, add_board
from orchestrator.db.repositories import Repository
from orchestrator.main import Service
from orchestrator.repositories import Elsewhere
from orchestrator.web.api import create_api
from orchestrator.web.guard import own_hosts
from orchestrator.web.server import WebServer
from orchestrator.webhooks.intake import intakes
from orchestrator.wiring import App


def web_server(app: App, service: Service, local: Secret, *, port: int) -> WebServer:
    """API, board and webhooks behind one door; not yet listening."""
    settings = app.settings

    def register(source: Path | None, at: Elsewhere | None, name: str, prefix: str) -> Repository:
        if at is not None:
            return app.register_elsewhere(at, name=name, prefix=prefix)
        return app.register_repository(source or Path(), name=name, prefix=prefix)

    api = create_api(
        app.operations,
        token=settings.token.reveal() or None,
        ready=service.ready,
        telemetry=app.telemetry,
        hosts=own_hosts(settings.host, settings.base_url) if settings.loopback else None,
        local_token=local.reveal(),
        register=register,
        restore=app.restore,
        connect=app.connect_tracker,
        move=app.moving.move,
        open_paths=OPEN_PATHS,
        signed=intakes(
            app.receiver,
            app.webhooks,
            secrets=app.webhook_secrets,
            telemetry=app.telemetry,
            waypoints=app.outside.waypoints,
        ),
        build_sha=settings.build_sha,
    )
    add_board(api, app.operations, clock=app.clock)
    return WebServer(api, host=settings.host, port=port)
