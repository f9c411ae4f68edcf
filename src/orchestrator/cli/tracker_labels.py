"""What `orch connect` makes where tickets lie: the labels by which ours are known there."""

import os
from collections.abc import Iterator, Sequence

from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Settings
from orchestrator.db import tickets
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import OutsideError
from orchestrator.trackers import plane_trial
from orchestrator.trackers.github import NAME as GITHUB
from orchestrator.trackers.github_trial import add_labels
from orchestrator.trackers.plane_open import PlaneProjects
from orchestrator.wiring import open_readonly


def label_project(settings: Settings, at: TrackerProject, plane: PlaneProjects) -> Iterator[Finding]:
    """The label that marks our tickets, where nothing there would mark any."""
    name = min(settings.plane_labels, default="")
    try:
        project = plane.opened(at)
        labels = project.labels()
        marked = {*labels, *(label.lower() for label in labels.values())} & settings.plane_labels
        if name and not marked and not settings.plane_take_states:
            plane_trial.add_label(project, name)
            project.forget()
            yield Finding(Level.OK, at.repo, f"made the label {name}, which marks our tickets")
    except OutsideError as error:
        yield Finding(
            Level.WARNING, at.repo, f"the label {name} could not be made: {error.message}", error.hint
        )


def label_repositories(settings: Settings, names: Sequence[str]) -> Iterator[Finding]:
    """The labels that mark and show issues, in those repositories whose tickets they are."""
    with open_readonly(settings, os.environ) as app:
        with app.database.read() as tx:
            known = [at.repo for at in tickets.projects(tx, GITHUB) if at.repo in names]
        for repo in known:
            try:
                made = add_labels(app.issues.opened(repo), settings.github_labels)
            except OutsideError as error:
                text = f"its labels could not be made: {error.message}"
                yield Finding(Level.WARNING, repo, text, error.hint)
            else:
                if made:
                    yield Finding(Level.OK, repo, f"made the labels {', '.join(made)}")
