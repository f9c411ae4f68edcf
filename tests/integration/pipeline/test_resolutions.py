"""A person's word on an effect: the authority is asked first, giving up revokes, and each word is answered (N12)."""

import signal
from collections.abc import Callable

import pytest

from orchestrator.deploy.command import CommandDeployer
from orchestrator.deploy.records import DeployKind, DeployStart
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import AuthorityUnreachable, NotFound, OutsideError, RequestRefused
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.forges.local import LocalForge
from orchestrator.images.store import LocalImageStore
from orchestrator.operations.deciding import Receipt
from orchestrator.operations.effects import EffectOnShow
from orchestrator.stage_engine.resolutions import Resolution
from tests.fixtures_pipeline import ILL, Build, Pipeline
from tests.waiting import wait_until


def _refuses(*args: object, **kwargs: object) -> None:
    raise AuthorityUnreachable("405 try again later")


def _open(line: Pipeline, name: EffectName) -> EffectOnShow:
    """The effect that has been tried and is not settled."""

    def tried() -> EffectOnShow | None:
        found = line.app.operations.effects()
        return next((e for e in found if e.name is name and e.attempts), None)

    return wait_until(tried)


def _say(line: Pipeline, effect: EffectOnShow, resolution: Resolution, reason: str = "seen it") -> Receipt:
    return line.app.operations.resolve_effect(effect.id, resolution, person="Ann", reason=reason)


def _effects(line: Pipeline, item: str, name: EffectName) -> list[Intent]:
    return [effect for effect in line.story(item).effects if effect.name is name]


def _comments(line: Pipeline, item: str) -> str:
    line.app.outbox.run_once()
    return str(line.app.tracker.history(line.task(item).work_item))


def _away(line: Pipeline, point: str) -> Callable[[], object]:
    """The forge cannot be read from a point on; gives what brings it back."""
    forge, away = line.forge.folder, line.root / "away"
    line.points.on(point, lambda: forge.rename(away))
    return lambda: away.rename(forge)


# --- while the authority cannot be read -------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("resolution", [Resolution.NOT_APPLIED, Resolution.RETRY])
def test_n12_giving_up_by_word_alone_is_refused_in_an_outage(pipeline: Build, resolution: Resolution) -> None:
    """The queued merge lands, or does not: nobody has rolled the task back on a mere word."""
    line = pipeline().start()
    back = _away(line, "merge_pr.intended")
    item = line.add()
    effect = _open(line, EffectName.MERGE_PR)
    assert effect.state is EffectState.IN_DOUBT
    answer = line.outcome(_say(line, effect, resolution))
    assert answer.startswith("refused: the authority cannot be read")
    [merge] = _effects(line, item, EffectName.MERGE_PR)
    assert merge.state is EffectState.IN_DOUBT
    assert line.task(item).stage is Stage.DEPLOY_STAGING
    back()
    line.done(item)
    assert len(line.merges()) == 1
    assert "the authority cannot be read" in _comments(line, item)


@pytest.mark.long
def test_applied_by_word_goes_on_while_the_authority_is_away(pipeline: Build) -> None:
    line = pipeline().start()
    back = _away(line, "merge_pr.after_act")
    item = line.add()
    effect = _open(line, EffectName.MERGE_PR)
    assert line.outcome(_say(line, effect, Resolution.APPLIED, "main shows it in the browser")) == "applied"
    line.stage(item, Stage.DEPLOY) if not line.task(item).stage.terminal else None
    [merge] = _effects(line, item, EffectName.MERGE_PR)
    assert merge.state is EffectState.APPLIED
    fact = dict(merge.fact or {})
    assert (fact["said_by"], fact["reason"]) == ("Ann", "main shows it in the browser")
    assert merge.reason == "said by Ann: main shows it in the browser"
    back()
    line.done(item)
    assert line.merges() == [fact["merged"]]
    assert "settled as applied on this word" in _comments(line, item)


@pytest.mark.long
def test_a_word_is_not_enough_where_what_follows_needs_a_number(pipeline: Build) -> None:
    line = pipeline().start()
    back = _away(line, "open_pr.intended")
    item = line.add()
    effect = _open(line, EffectName.OPEN_PR)
    assert "only the authority can tell" in line.outcome(_say(line, effect, Resolution.APPLIED))
    back()
    line.done(item)
    assert len(line.pulls()) == 1


@pytest.mark.long(but=["not-applied"])
@pytest.mark.parametrize("resolution", sorted(set(Resolution) - {Resolution.ENDED}))
def test_what_the_authority_shows_wins(pipeline: Build, resolution: Resolution) -> None:
    line = pipeline()
    item = _killed(line, "merge_pr.after_act")
    line.open()
    [effect] = line.app.operations.effects()
    receipt = _say(line, effect, resolution)
    line.start()
    line.done(item)
    outcome = line.outcome(receipt)
    assert outcome == "applied" if resolution is Resolution.APPLIED else "shows that it took place" in outcome
    assert len(line.merges()) == 1
    assert line.task(item).round == 1
    assert "shows that it took place" in _comments(line, item)


# --- a merge that is refused for ever ---------------------------------------------------------------------------------


def test_merge_given_up_goes_back_and_can_never_land(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = pipeline(staging=True).start()
    with monkeypatch.context() as patch:
        patch.setattr(LocalForge, "merge", _refuses)
        item = line.add()
        effect = _open(line, EffectName.MERGE_PR)
        assert "has not taken place" in line.outcome(_say(line, effect, Resolution.APPLIED))
        assert line.merges() == []
        assert line.outcome(_say(line, effect, Resolution.NOT_APPLIED, "the forge lost it")) == "applied"
    first = line.story(item).candidates[0]
    with pytest.raises(OutsideError):
        line.app.places.of(line.repo).forge.merge(first, None)
    line.done(item)
    assert ("deploy-staging", "development", "reject") in line.moves(item)
    told = [run["notes"] for run in line.agents(item) if run["role"] == "developer"]
    assert "given up by Ann: the forge lost it" in told[1]
    assert [m.state for m in _effects(line, item, EffectName.MERGE_PR)] == [
        EffectState.REVOKED,
        EffectState.APPLIED,
    ]
    assert len(line.merges()) == 1
    assert "revoked, it cannot take place any more" in _comments(line, item)


@pytest.mark.long
def test_merge_retried_is_a_new_candidate(pipeline: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    line = pipeline("[budget]\nmax_candidates = 1\n", staging=True).start()
    with monkeypatch.context() as patch:
        patch.setattr(LocalForge, "merge", _refuses)
        item = line.add()
        effect = _open(line, EffectName.MERGE_PR)
        assert line.outcome(_say(line, effect, Resolution.RETRY)) == "applied"
    line.done(item)
    assert ("deploy-staging", "deploy-staging", "renew") in line.moves(item)
    one, two = line.story(item).candidates
    assert line.merges() == [two.sha]
    assert one.nonce != two.nonce
    assert line.roles(item).count("developer") == 1
    revoked, _ = _effects(line, item, EffectName.MERGE_PR)
    assert revoked.reason == "done again for Ann: seen it"


@pytest.mark.long
def test_giving_up_that_cannot_be_sent_is_kept_and_done_later(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = pipeline().start()
    with monkeypatch.context() as patch:
        patch.setattr(LocalForge, "merge", _refuses)
        patch.setattr(LocalForge, "revoke_merge", _refuses)
        item = line.add()
        effect = _open(line, EffectName.MERGE_PR)
        answer = line.outcome(_say(line, effect, Resolution.NOT_APPLIED, "lost"))
        assert answer.startswith("refused") and "The decision is kept" in answer
        [merge] = _effects(line, item, EffectName.MERGE_PR)
        assert (merge.state, merge.reason) == (EffectState.REVOKING, "given up by Ann: lost")
        [again] = line.app.operations.effects()
        answer = line.outcome(_say(line, again, Resolution.RETRY))
        assert "being given up already: given up by Ann" in answer
    line.done(item)
    assert ("deploy-staging", "development", "reject") in line.moves(item)
    assert len(line.merges()) == 1


@pytest.mark.long
@pytest.mark.parametrize("resolution", [Resolution.NOT_APPLIED, Resolution.RETRY])
def test_a_crash_while_revoking_loses_no_word(pipeline: Build, resolution: Resolution) -> None:
    line = pipeline()
    item = _killed(line, "merge_pr.before_act")
    line.open()
    [effect] = line.app.operations.effects()
    receipt = _say(line, effect, resolution, "because")
    line.stop()
    assert line.child("merge_pr.before_revoke").wait(60) == -signal.SIGKILL
    line.start()
    line.done(item)
    assert line.outcome(receipt) == "applied"
    edge = ("deploy-staging", "deploy-staging", "renew") if resolution is Resolution.RETRY else None
    assert (edge or ("deploy-staging", "development", "reject")) in line.moves(item)
    assert len(line.merges()) == 1


# --- deploys ----------------------------------------------------------------------------------------------------------


def _no_start(kind: DeployKind, environment: str) -> Callable[[CommandDeployer, DeployStart], None]:
    real = CommandDeployer.start

    def start(self: CommandDeployer, wanted: DeployStart) -> None:
        if (wanted.kind, wanted.environment) == (kind, environment):
            raise OutsideError("no child can be started")
        real(self, wanted)

    return start


@pytest.mark.long
@pytest.mark.parametrize("environment", ["staging", "production"])
def test_start_retried_is_a_new_generation(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    line = pipeline(staging=True, production=True).start()
    with monkeypatch.context() as patch:
        patch.setattr(CommandDeployer, "start", _no_start(DeployKind.DEPLOY, environment))
        item = line.add()
        effect = _open(line, EffectName.DEPLOY_INIT)
        assert line.outcome(_say(line, effect, Resolution.RETRY)) == "applied"
    line.done(item)
    starts = [
        e for e in _effects(line, item, EffectName.DEPLOY_INIT) if e.judged["environment"] == environment
    ]
    assert [(e.state, e.judged["generation"]) for e in starts] == [
        (EffectState.REVOKED, 1),
        (EffectState.APPLIED, 2),
    ]
    assert len(line.deployed(environment)) == 1
    assert line.task(item).round == 1


@pytest.mark.long
def test_staging_start_given_up_calls_and_frees_the_slots(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = pipeline(staging=True).start()
    with monkeypatch.context() as patch:
        patch.setattr(CommandDeployer, "start", _no_start(DeployKind.DEPLOY, "staging"))
        item = line.add()
        effect = _open(line, EffectName.DEPLOY_INIT)
        assert line.outcome(_say(line, effect, Resolution.NOT_APPLIED, "staging is gone")) == "applied"
        task = line.held(item, Hold.ESCALATED)
    assert (task.stage, line.slots()) == (Stage.TESTING, [])
    assert "given up by Ann: staging is gone" in str(task.hold_reason)
    line.retry(item)
    line.done(item)


def test_production_start_given_up_is_broken_after_the_merge(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.main
    with monkeypatch.context() as patch:
        patch.setattr(CommandDeployer, "start", _no_start(DeployKind.DEPLOY, "production"))
        item = line.add("Second")
        effect = _open(line, EffectName.DEPLOY_INIT)
        assert line.outcome(_say(line, effect, Resolution.NOT_APPLIED)) == "applied"
        task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert line.frozen()
    assert line.running("production") == good
    assert len(line.deployed("production")) == 1, "what was never started is not undone"
    line.retry(item)
    line.done(item)
    assert line.running("production") == line.main


@pytest.mark.long
def test_start_that_its_child_has_claimed_is_not_done_again(pipeline: Build) -> None:
    line = pipeline(production=True)
    item = _killed(line, "deploy_init.after_act")
    line.open()
    [effect] = line.app.operations.effects()
    receipt = _say(line, effect, Resolution.RETRY)
    line.start()
    line.done(item)
    assert "took place" in line.outcome(receipt)
    assert len(line.deployed("production")) == 1


@pytest.mark.long
@pytest.mark.parametrize("resolution", [Resolution.RETRY, Resolution.NOT_APPLIED])
def test_undo_resolved(pipeline: Build, monkeypatch: pytest.MonkeyPatch, resolution: Resolution) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production=ILL)
    with monkeypatch.context() as patch:
        patch.setattr(CommandDeployer, "start", _no_start(DeployKind.UNDO, "production"))
        item = line.add("Bad")
        effect = _open(line, EffectName.DEPLOY_UNDO)
        with pytest.raises(RequestRefused):
            line.app.operations.unfreeze("sample", person="Ann")
        assert line.outcome(_say(line, effect, resolution)) == "applied"
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert line.frozen()
    assert line.slots() == ["merge:sample"]
    states = [e.state for e in _effects(line, item, EffectName.DEPLOY_UNDO)]
    if resolution is Resolution.RETRY:
        assert states == [EffectState.REVOKED, EffectState.APPLIED]
        wait_until(lambda: line.running("production") == good)
        assert len(line.deployed("production")) == 3
    else:
        assert states == [EffectState.REVOKED]
        assert "given up by Ann" in str(task.hold_reason)
        assert len(line.deployed("production")) == 2
    assert line.app.operations.unfreeze("sample", person="Ann")


# --- pushes, pull requests, builds ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "method", "name"),
    [
        (LocalForge, "push", EffectName.PUSH),
        (LocalForge, "prepare_merge", EffectName.PUSH),
        (LocalForge, "open_pr", EffectName.OPEN_PR),
        (LocalImageStore, "publish", EffectName.IMAGE),
    ],
    ids=["push", "push-candidate", "open_pr", "image"],
)
def test_what_is_retried_before_the_merge_gets_an_intent_of_its_own(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, name: EffectName
) -> None:
    line = pipeline(image=True, staging=True).start()
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, _refuses)
        item = line.add()
        effect = _open(line, name)
        for _ in range(2):
            assert line.outcome(_say(line, effect, Resolution.RETRY)) == "applied"
            effect = wait_until(lambda before=effect: _newer(line, name, before))
    line.done(item)
    revoked = [e for e in _effects(line, item, name) if e.state is EffectState.REVOKED]
    assert len(revoked) == 2
    assert len(line.merges()) == 1
    assert len(line.pulls()) == 1
    assert line.roles(item).count("developer") == 1


def _newer(line: Pipeline, name: EffectName, before: EffectOnShow) -> EffectOnShow | None:
    return next((e for e in line.app.operations.effects() if e.name is name and e.id > before.id), None)


# --- what cannot be said ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_is_settled_or_not_there_or_has_changed_is_refused(pipeline: Build) -> None:
    line = pipeline().start()
    back = _away(line, "merge_pr.intended")
    item = line.add()
    effect = _open(line, EffectName.MERGE_PR)
    say = line.app.operations.resolve_effect
    settled = _effects(line, item, EffectName.OPEN_PR)[0].effect_id
    with pytest.raises(RequestRefused, match="is settled"):
        say(settled, Resolution.APPLIED, person="Ann", reason="x")
    with pytest.raises(NotFound):
        say(404, Resolution.APPLIED, person="Ann", reason="x")
    with pytest.raises(RequestRefused, match="needs a reason"):
        say(effect.id, Resolution.APPLIED, person="Ann", reason=" ")
    with pytest.raises(RequestRefused, match="not intended"):
        say(effect.id, Resolution.APPLIED, person="Ann", reason="x", state=EffectState.INTENDED)
    line.stop()
    line.open()
    late = _say(line, effect, Resolution.NOT_APPLIED)
    with line.app.database.write() as tx:
        tx.execute(
            "effects.move", effect_id=effect.id, state="intended", expected="in_doubt", reason="", cause=None
        )
    back()
    line.start()
    line.done(item)
    assert "was in_doubt when that was said, and is intended now" in line.outcome(late)


def _killed(line: Pipeline, point: str) -> str:
    """A task whose service was killed at a point."""
    line.register()
    line.stop()
    line.open()
    item = line.add()
    line.stop()
    assert line.child(point).wait(60) == -signal.SIGKILL
    return item
