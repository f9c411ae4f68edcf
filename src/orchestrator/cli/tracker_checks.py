"""What `orch doctor` looks at at Plane: whether tickets come from there, and are told where their tasks stand."""

from collections.abc import Collection, Iterator, Mapping

from orchestrator.cli.checks import Finding, Level
from orchestrator.config import Settings
from orchestrator.db import tickets
from orchestrator.db.opening import has_state
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.trackers.plane import NAME
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.wiring import open_readonly

GROUPS = ("started", "completed", "cancelled")  # each shows something of a task
CLOCK_S = 5.0  # a word is compared with what was on show when it was said


def trackers(
    settings: Settings, environ: Mapping[str, str], *, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """What is wrong with the projects that are connected, or with those of these repositories; nothing where there is
    none."""
    if not has_state(settings.database_url):
        return
    try:
        with open_readonly(settings, environ) as app:
            with app.database.read() as tx:
                known = [at for at in tickets.projects(tx, NAME) if only is None or at.repo in only]
            for project in known:
                about = f"{project.repo} tickets"
                try:
                    found = list(_complaints(settings, project, app.plane.opened(project)))
                except OutsideError as error:
                    found = [(Level.WARNING, error.message, error.hint)]
                if not any(level is Level.WARNING for level, _, _ in found):
                    found.insert(0, (Level.OK, f"come from {project.location}", ""))
                yield from (Finding(level, about, text, hint) for level, text, hint in found)
    except OrchestratorError:
        return  # said of the database already


def _complaints(
    settings: Settings, known: TrackerProject, project: PlaneProject
) -> Iterator[tuple[Level, str, str]]:
    project.check()
    states, labels = project.states().values(), project.labels()
    for group in GROUPS:
        if not any(state.group == group for state in states):
            text = f"the project has no state of the group {group}: a ticket will not show that"
            yield Level.WARNING, text, "Add one there; its name is yours."
    marked = {*labels, *(name.lower() for name in labels.values())} & settings.plane_labels
    if not marked and not any(state.among(settings.plane_take_states) for state in states):
        names = ", ".join(sorted(settings.plane_labels))
        text = f"no ticket will be taken: the project has no label {names}, and no state that is to be taken"
        yield Level.WARNING, text, "Add the label there, or set ORCH_PLANE_LABELS or ORCH_PLANE_TAKE_STATES."
    words = {"Approved": settings.plane_approved, "Confirm Deploy": settings.plane_confirm_deploy}
    missing = [kind for kind, names in words.items() if not any(state.among(names) for state in states)]
    if missing:
        text = f"the project has no state for {' and '.join(missing)}: that is said by comment there"
        yield Level.NOTE, text, "`orch task approve` as a comment does the same."
    if abs(ahead := project.server.ahead_s) > CLOCK_S:
        text = f"the clock there is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} ours"
        yield (
            Level.WARNING,
            text,
            "Let both machines keep their time by NTP; we reckon with the difference until then.",
        )
    yield _webhooks(settings, known)


def _webhooks(settings: Settings, known: TrackerProject) -> tuple[Level, str, str]:
    every = f"read every {settings.plane_poll_interval_s:g} s"
    if not settings.plane_webhook_secret:
        return (
            Level.NOTE,
            f"no webhooks are taken; tickets are {every}",
            "Set ORCH_PLANE_WEBHOOK_SECRET_FILE.",
        )
    if known.told == tickets.SILENT:
        hint = "Is the webhook active there? Switch it on again; it is switched off when we do not answer."
        return Level.WARNING, f"webhooks tell nothing any more; tickets are {every}", hint
    if known.heard_at is None:
        return Level.NOTE, f"no webhook has come yet; tickets are {every}", ""
    return Level.OK, f"a webhook last told of them at {known.heard_at}", ""
