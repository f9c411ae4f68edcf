"""What an operator can set about Plane; part of :class:`~orchestrator.config.settings.Settings`."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import values
from orchestrator.config.fields import bearer, period, secret_file, setting, webhook_secret
from orchestrator.config.secret import Secret, Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneSettings:
    """Tickets at a Plane."""

    plane_url: str = setting(
        "",
        values.web_address,
        "Address of the Plane that tickets lie at, without `/api/v1`; of Plane's cloud `https://api.plane.so`.",
        shown="none",
    )
    plane_token: Secret = bearer("API key of our user there. Better given as a file.")
    plane_token_file: Path | None = secret_file("ORCH_PLANE_TOKEN")
    plane_labels: frozenset[str] = setting(
        frozenset({"orch"}),
        values.names,
        "Labels that have a Plane ticket taken: names or ids, separated by commas.",
        shown="orch",
    )
    plane_take_states: frozenset[str] = setting(
        frozenset(),
        values.names,
        "States that have a Plane ticket taken, with or without a label: names or ids, separated by commas.",
        shown="none",
    )
    plane_states: tuple[tuple[str, str], ...] = setting(
        (),
        values.stage_states,
        "States that show a task's stage, such as `review=In Review,done=Released`: names or ids. For every other "
        "stage the first state of the group started, completed or cancelled.",
        shown="none",
    )
    plane_user: str = setting(
        "",
        values.identifier,
        "Id of our own user at Plane (`GET users/me/`): what it does is ignored. Not needed with ORCH_PLANE_TOKEN. "
        "Without either nobody's approval, rejection or retry is taken from Plane.",
        shown="none",
    )
    plane_approved: frozenset[str] = setting(
        frozenset({"approved"}),
        values.names,
        "States of a Plane ticket that mean Approved: names or ids, separated by commas.",
        shown="Approved",
    )
    plane_confirm_deploy: frozenset[str] = setting(
        frozenset({"confirm deploy"}),
        values.names,
        "States of a Plane ticket that mean Confirm Deploy: names or ids, separated by commas.",
        shown="Confirm Deploy",
    )
    plane_poll_interval_s: float = period(
        60.0, "How often each Plane project is read, whether it sends webhooks or not.", 5.0, 3600.0
    )
    plane_calls_per_minute: int = setting(
        50,
        values.whole(4, 10_000),
        "Most calls in a minute with our key at Plane, for all projects together. Its own limit is 60, unless "
        "API_KEY_RATE_LIMIT there says otherwise.",
        unit="calls",
    )
    plane_silence_s: float = period(
        900.0,
        "A person is called when Plane has shown a change for so long of which no webhook has told, while a webhook "
        "secret is set. Plane repeats what it could not deliver after up to ten minutes.",
        60.0,
    )
    plane_webhook_secret: Secrets = webhook_secret("Plane")
    plane_webhook_secret_file: Path | None = secret_file("ORCH_PLANE_WEBHOOK_SECRET")
