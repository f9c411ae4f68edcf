"""What `orch doctor` looks at where tickets lie, at Plane or in issues at GitHub: whether they come from there, and are
told where their tasks stand."""

from collections.abc import Callable, Collection, Iterator, Mapping

from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Secrets, Settings
from orchestrator.db import tickets
from orchestrator.db.opening import has_state
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.trackers.github import NAME as GITHUB
from orchestrator.trackers.github_labels import SHOWN, label_of
from orchestrator.trackers.plane import NAME as PLANE
from orchestrator.wiring import App, open_readonly

Said = tuple[Level, str, str]  # with what to do about it

GROUPS = ("started", "completed", "cancelled")  # each shows something of a task
CLOCK_S = 5.0  # a word is compared with what was on show when it was said


def trackers(
    settings: Settings, environ: Mapping[str, str], *, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """What is wrong with the projects that are connected, or with those of these repositories; nothing where there is
    none."""
    try:
        if not has_state(settings.database_url):
            return
        with open_readonly(settings, environ) as app:
            with app.database.read() as tx:
                known = [at for name in _LOOKS for at in tickets.projects(tx, name)]
            for project in known:
                if only is not None and project.repo not in only:
                    continue
                about = f"{project.repo} tickets"
                try:
                    found = list(_LOOKS[project.tracker](settings, project, app))
                except OutsideError as error:
                    found = [(Level.WARNING, error.message, error.hint)]
                if not any(level is Level.WARNING for level, _, _ in found):
                    found.insert(0, (Level.OK, f"come from {project.location}", ""))
                yield from (Finding(level, about, text, hint) for level, text, hint in found)
    except OrchestratorError:
        return  # said of the database already


def _plane(settings: Settings, known: TrackerProject, app: App) -> Iterator[Said]:
    project = app.plane.opened(known)
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
    yield from _clocks(project.server.ahead_s)
    yield _webhooks(known, settings.plane_webhook_secret, "PLANE", settings.plane_poll_interval_s)


def _github(settings: Settings, known: TrackerProject, app: App) -> Iterator[Said]:
    issues = app.issues.opened(known.repo)
    issues.check()
    issues.readable()
    labels = issues.labels()
    if not labels & settings.github_labels:
        names = ", ".join(sorted(settings.github_labels))
        text = f"no ticket will be taken: the repository has no label {names}"
        yield Level.WARNING, text, "`orch connect github` makes it. Or set ORCH_GITHUB_LABELS."
    if missing := [label for stage in SHOWN if (label := label_of(stage)) not in labels]:
        text = f"{len(missing)} of the labels that show a stage are not there yet; each is made when it is needed"
        yield Level.NOTE, text, "`orch connect github` makes them, in one color."
    if issues.may_write(issues.us().login) is None:
        text = "GitHub does not tell who may write to the repository: no command in a comment will be taken"
        yield (
            Level.WARNING,
            text,
            "Give our user the role Write, and its token the permission Metadata: read.",
        )
    yield from _clocks(issues.ahead_s)
    yield _webhooks(known, settings.github_webhook_secret, "GITHUB", settings.github_poll_interval_s)


def _clocks(ahead: float) -> Iterator[Said]:
    if abs(ahead) > CLOCK_S:
        text = f"the clock there is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} ours"
        yield (
            Level.WARNING,
            text,
            "Let both machines keep their time by NTP; we reckon with the difference until then.",
        )


def _webhooks(known: TrackerProject, secrets: Secrets, name: str, every_s: float) -> Said:
    every = f"read every {every_s:g} s"
    if not secrets:
        hint = f"Set ORCH_{name}_WEBHOOK_SECRET_FILE."
        return Level.NOTE, f"no webhooks are taken; tickets are {every}", hint
    if known.told == tickets.SILENT:
        hint = f"Is the webhook active there? `orch connect {name.lower()}` looks after it."
        return Level.WARNING, f"webhooks tell nothing any more; tickets are {every}", hint
    if known.heard_at is None:
        return Level.NOTE, f"no webhook has come yet; tickets are {every}", ""
    return Level.OK, f"a webhook last told of them at {known.heard_at}", ""


_LOOKS: Mapping[str, Callable[[Settings, TrackerProject, App], Iterator[Said]]] = {
    PLANE: _plane,
    GITHUB: _github,
}
