"""``orch restore folder``: a person says that the state folder is lost for good, and another one takes its place.

What must hold: what is not found in the new folder counts as not done nowhere. So for every start that is not settled,
and for the last one of each environment, it is written down there that its record is lost, before the new folder
becomes the database's; and in the commit in which it does every start that is not settled comes to be in doubt, until a
person says what became of it. Agents' runs need nothing: a folder of a run that has vanished holds its task.
"""

from collections.abc import Callable, Sequence

from orchestrator.db import alerts, effects, events, evidence, installation, restored, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.prepared import CONDITIONAL_UNDO, start_carried
from orchestrator.deploy.records import DeployKind, DeployStart
from orchestrator.domain.effect import EffectName, Intent
from orchestrator.domain.errors import InvariantError, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import CHECK_STAGING, START_STAGING, StepKind

REASON_LIMIT = 2000
LOST = "the state folder with its record is lost; look at the environment, then say what became of it"
JUDGED = "Its deploy was judged, or its undo ended, before the state folder was lost."


class NewFolder:
    """Lets the folder of this process take the place of one that is lost."""

    def __init__(
        self,
        database: Database,
        deployer: Deployer,
        *,
        state_id: str,
        boot_id: BootId,
        alone: Callable[[], None],
    ) -> None:
        """``alone`` raises where another process lives."""
        self._database = database
        self._deployer = deployer
        self._state_id = state_id
        self._boot_id = boot_id
        self._alone = alone

    def take(self, *, person: str, reason: str) -> dict[str, list[dict[str, object]]]:
        """Make it the database's own. Tells which starts are in doubt from now on, and of which deploys it is not known
        whether their command has ended.

        :raises RequestRefused: no reason is given, or nothing is lost.
        :raises StateInUse: another process lives.
        :raises OutsideError: the folder cannot be written; the database has not been changed.
        """
        person, reason = person[:200], reason.strip()[:REASON_LIMIT]
        if not reason:
            raise RequestRefused("A folder is given up for a reason.", hint="Say it with --reason.")
        self._alone()
        with self._database.read() as tx:
            lost = installation.folder(tx)
            unsettled = effects.unsettled_starts(tx)
            last = [(intent, _judged(tx, intent)) for intent in effects.last_starts(tx)]
            may_be_undone = effects.undecided_self_starts(tx)
        if lost is None or lost == self._state_id:
            raise RequestRefused(
                "This state folder belongs to the database, or none does yet; nothing was changed.",
                hint="`orch restore folder` is for a folder that is lost; name the one to go on with in ORCH_HOME.",
            )
        doubtful = [intent for intent in unsettled if self._deployer.lose(_start(intent))]
        open_ends = [
            intent
            for intent, judged in last
            if self._deployer.lose(_start(intent), ended=JUDGED if judged else "") and not judged
        ]
        for intent in may_be_undone:
            self._deployer.lose(_undo(intent))
        with self._database.write() as tx:
            if not installation.exchange_folder(tx, self._state_id, lost=lost):
                raise RequestRefused("Another folder has taken its place already; nothing was changed.")
            self._alone()  # whoever starts from here on waits for this commit, and is judged by it
            restored.forget_others(tx, self._boot_id)
            doubtful = [intent for intent in doubtful if _doubt(tx, intent)]
            told = {"in_doubt": _told(tx, doubtful), "not_ended": _told(tx, open_ends)}
            _tell(tx, told, person, reason, self._state_id)
        return told


def _doubt(tx: Tx, intent: Intent) -> bool:
    if not effects.doubt(tx, intent, LOST):
        return False
    data = {"effect": intent.name, "key": intent.key, "sequence": intent.sequence, "reason": LOST}
    task = tasks.get(tx, intent.task_id)
    events.append(tx, EventType.EFFECT_IN_DOUBT, Actor.OPERATOR, task=task, data=data)
    return True


def _judged(tx: Tx, intent: Intent) -> bool:
    """Whether it is known that nothing of its command is at work: an undo is settled at its end, a deploy is judged
    after it."""
    if intent.name is EffectName.DEPLOY_UNDO:
        return "said_by" not in (intent.fact or {})
    if intent.judged.get("step") == START_STAGING.name:
        return evidence.passed(tx, intent.task_id, intent.round, f"{StepKind.GATE}:{CHECK_STAGING}")
    return tasks.get(tx, intent.task_id).stage is Stage.DONE


def _tell(tx: Tx, told: dict[str, list[dict[str, object]]], person: str, reason: str, state_id: str) -> None:
    events.append(
        tx, EventType.INSTALLATION_FOLDER, Actor.OPERATOR, data={"person": person, "reason": reason, **told}
    )
    waiting = [f"{one['work_item']} ({one['environment']})" for one in told["in_doubt"]]
    text = f"{person} has given up the state folder as lost: {reason}. "
    text += (
        f"In doubt, and waiting for a person: {', '.join(waiting)}." if waiting else "Nothing is in doubt."
    )
    alerts.call(tx, text, "state folder", state_id)


def _told(tx: Tx, intents: Sequence[Intent]) -> list[dict[str, object]]:
    return [
        {
            "effect": intent.effect_id,
            "work_item": tasks.get(tx, intent.task_id).work_item,
            "name": intent.name.value,
            "environment": intent.judged["environment"],
        }
        for intent in intents
    ]


def _start(intent: Intent) -> DeployStart:
    kind = DeployKind.UNDO if intent.name is EffectName.DEPLOY_UNDO else DeployKind.DEPLOY
    return start_carried(kind, intent.judged, intent.sequence, intent.token)


def _undo(intent: Intent) -> DeployStart:
    """The undo that was drawn with a deploy of ourselves, which its runner may have performed."""
    stored = intent.judged[CONDITIONAL_UNDO]
    if not isinstance(stored, dict):
        raise InvariantError(f"the conditional undo of {intent.key} carries nothing")
    return start_carried(DeployKind.UNDO, stored["judged"], int(stored["sequence"]), str(stored["token"]))
