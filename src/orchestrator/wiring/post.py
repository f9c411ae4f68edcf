"""Messages in and out: webhooks, alerts, tickets elsewhere."""

from collections.abc import Mapping
from functools import cached_property

from orchestrator.config.secret import Secrets
from orchestrator.daemons.inbox import Inbox
from orchestrator.daemons.outbox import Outbox
from orchestrator.db import mail
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.ids import RepoName
from orchestrator.domain.lease import Actor
from orchestrator.notifications.any_service import NAME as APPRISE
from orchestrator.notifications.any_service import AppriseNotifier
from orchestrator.notifications.notifier import Notifier
from orchestrator.notifications.telegram import NAME as TELEGRAM
from orchestrator.notifications.telegram import TelegramNotifier, TelegramSettings
from orchestrator.trackers.github import GitHubTracker
from orchestrator.trackers.plane import NAME as PLANE
from orchestrator.trackers.plane import PlaneTracker
from orchestrator.trackers.plane_open import shown_as
from orchestrator.trackers.tracker import Tracker
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.github import GitHubHandler
from orchestrator.webhooks.github_issues import GitHubIssues
from orchestrator.webhooks.handler import WebhookHandler
from orchestrator.webhooks.plane import READ, PlaneHandler, PlaneStates
from orchestrator.webhooks.receiving import Receiver
from orchestrator.wiring.work import Work


class Post(Work):
    """Messages in and out."""

    @cached_property
    def webhooks(self) -> tuple[WebhookHandler, ...]:
        """What understands trackers and forges."""
        return self._plane_handler(PLANE), GiteaHandler(), GitHubHandler()

    def _plane_handler(self, source: str) -> PlaneHandler:
        states = PlaneStates(self.settings.plane_approved, self.settings.plane_confirm_deploy)
        return PlaneHandler(user=self.settings.plane_user, states=states, source=source)

    @cached_property
    def handlers(self) -> tuple[WebhookHandler, ...]:
        """What understands all that the inbox holds: webhooks, and what was read elsewhere."""
        return *self.webhooks, self._plane_handler(READ), GitHubIssues()

    @cached_property
    def webhook_secrets(self) -> Mapping[str, Secrets]:
        """What each of them signs with."""
        return {
            PLANE: self.settings.plane_webhook_secret,
            GiteaHandler.source: self.settings.gitea_webhook_secret,
            GitHubHandler.source: self.settings.github_webhook_secret,
        }

    @cached_property
    def receiver(self) -> Receiver:
        """Stores what trackers and forges send."""
        return Receiver(
            self.database,
            self.handlers,
            arrived=self.wakeups.inbox.set,
            wake=self.wake_for(Actor.WEBHOOK),
            telemetry=self.telemetry,
        )

    @cached_property
    def inbox(self) -> Inbox:
        """Deals with what they have sent."""
        return Inbox(
            self.database,
            self.ownership,
            self.handlers,
            interval_s=self.settings.inbox_interval_s,
            wake=self.wake_for(Actor.WEBHOOK),
            entropy=self.entropy,
            waypoints=self.outside.waypoints,
        )

    @cached_property
    def outbox(self) -> Outbox:
        """Sends messages."""
        return Outbox(
            self.database,
            self.tracker,
            self.notifier,
            base_url=self.settings.base_url,
            interval_s=self.settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
        )

    @cached_property
    def telegram_outbox(self) -> Outbox | None:
        """Sends alerts to Telegram, beside the log; None where no bot is configured."""
        settings = self.settings
        if not settings.telegram_token or settings.telegram_chat is None:
            return None
        bot = TelegramSettings(
            settings.telegram_url, settings.telegram_token, settings.telegram_chat, settings.telegram_topic
        )
        return self._channel(TelegramNotifier(self.http, bot, self.clock, self.redactor))

    @cached_property
    def apprise_outbox(self) -> Outbox | None:
        """Sends alerts to any other service, beside the log; None where none is configured."""
        if not self.settings.apprise_urls:
            return None
        return self._channel(AppriseNotifier(self.settings.apprise_urls, self.redactor))

    def _channel(self, notifier: Notifier) -> Outbox:
        return Outbox(
            self.database,
            self.tracker,
            notifier,
            base_url=self.settings.base_url,
            interval_s=self.settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
            channel=notifier.name,
        )

    @cached_property
    def plane_outbox(self) -> Outbox | None:
        """Tells tickets at Plane; None where none is configured."""
        if not self.plane.access.configured:
            return None
        tracker = PlaneTracker(
            self.plane.of_task,
            shown_as(self.settings),
            self.tracker,
            self.redactor,
            pull_request=self.places.pull_request,
        )
        return self._telling(tracker)

    @cached_property
    def issues_outbox(self) -> Outbox | None:
        """Tells issues at GitHub; None where no token is configured."""
        if not self.issues.configured:
            return None
        tracker = GitHubTracker(
            self.issues.of_task, self.tracker, self.redactor, pull_request=self.places.pull_request
        )
        return self._telling(tracker)

    def _telling(self, tracker: Tracker) -> Outbox:
        return Outbox(
            self.database,
            tracker,
            self.notifier,
            base_url=self.settings.base_url,
            interval_s=self.settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
            of=tracker.name,
        )

    def announce_channels(self) -> None:
        """From now on alerts are queued for what is configured."""
        with self.database.write() as tx:
            channels = {TELEGRAM: self.telegram_outbox, APPRISE: self.apprise_outbox}
            mail.set_channels(tx, [name for name, outbox in channels.items() if outbox is not None])

    def connect_tracker(self, repo: str, plane: str | None) -> TrackerProject:
        """From now on let a repository's tickets come from a project at Plane, ``workspace/PROJECT``, or, where none is
        named, be its issues at GitHub."""
        name = RepoName(repo)
        known = self.issues.connect(name) if plane is None else self.plane.connect(name, plane)
        self.wakeups.everything()
        return known
