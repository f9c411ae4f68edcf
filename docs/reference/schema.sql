-- The schema on SQLite. Written by `./dev python -m tests.write_schema`; do not edit.

CREATE TABLE accepted_traces (
    name TEXT PRIMARY KEY,
    at   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE agent_runs (
    id                 INTEGER PRIMARY KEY,
    job_id             INTEGER NOT NULL REFERENCES jobs (id),
    task_id            INTEGER NOT NULL REFERENCES tasks (id),
    attempt            INTEGER NOT NULL CHECK (attempt >= 1),
    agent              TEXT NOT NULL,
    model              TEXT,
    run_dir            TEXT NOT NULL UNIQUE,
    outcome            TEXT,
    exit_code          INTEGER,
    input_tokens       INTEGER NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
    output_tokens      INTEGER NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0 CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER NOT NULL DEFAULT 0 CHECK (cache_write_tokens >= 0),
    cost_usd           REAL,
    summary            TEXT NOT NULL DEFAULT '',
    session_id         TEXT,
    started_at         TEXT NOT NULL,
    finished_at        TEXT, home TEXT NOT NULL DEFAULT '', tidied_at TEXT,
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
);

CREATE TABLE alert_channels (
    name TEXT PRIMARY KEY
);

CREATE TABLE approvals (
    task_id  INTEGER NOT NULL REFERENCES tasks (id),
    kind     TEXT NOT NULL CHECK (kind IN ('approved', 'confirm-deploy')),
    stage    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    subject  TEXT NOT NULL,
    person   TEXT NOT NULL,
    at       TEXT NOT NULL,
    PRIMARY KEY (task_id, kind, stage, round, subject)
) WITHOUT ROWID;

CREATE TABLE candidates (
    task_id      INTEGER NOT NULL REFERENCES tasks (id),
    round        INTEGER NOT NULL,
    sha          TEXT NOT NULL UNIQUE,
    tree         TEXT NOT NULL,
    base_sha     TEXT NOT NULL,
    head_sha     TEXT NOT NULL,
    nonce        TEXT NOT NULL UNIQUE,
    sequence     INTEGER NOT NULL UNIQUE,
    fence        TEXT NOT NULL,
    built_at     TEXT NOT NULL,
    PRIMARY KEY (task_id, round)
);

CREATE TABLE checks (
    task_id  INTEGER NOT NULL REFERENCES tasks (id),
    stage    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    sha      TEXT NOT NULL,
    verdict  TEXT NOT NULL CHECK (verdict IN ('pass', 'fail')),
    detail   TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    at       TEXT NOT NULL,
    PRIMARY KEY (task_id, stage, round, kind)
) WITHOUT ROWID;

CREATE TABLE coverage_baseline (
    id         INTEGER PRIMARY KEY,
    repo       TEXT NOT NULL REFERENCES repositories (name),
    merged_sha TEXT NOT NULL,
    percent    REAL NOT NULL CHECK (percent BETWEEN 0 AND 100),
    measured   REAL NOT NULL CHECK (measured BETWEEN 0 AND 100),
    task_id    INTEGER REFERENCES tasks (id),
    at         TEXT NOT NULL,
    UNIQUE (repo, merged_sha)
);

CREATE TABLE deliveries (
    inbox_id    INTEGER PRIMARY KEY REFERENCES inbox (id),
    source      TEXT NOT NULL,
    delivery_id TEXT,              -- the sender's; another one for each repeat
    attempts    INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    deferrals   INTEGER NOT NULL DEFAULT 0 CHECK (deferrals >= 0),
    not_before  TEXT,
    parked_at   TEXT,
    error       TEXT,
    UNIQUE (source, delivery_id)
);

CREATE TABLE effects (
    id         INTEGER PRIMARY KEY,
    task_id    INTEGER NOT NULL REFERENCES tasks (id),
    name       TEXT NOT NULL CHECK (name IN
                   ('push', 'open_pr', 'merge_pr', 'ratchet', 'image', 'deploy_init', 'deploy_undo')),
    key        TEXT NOT NULL,
    round      INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('intended', 'revoking', 'in_doubt', 'applied', 'revoked')),
    epoch      INTEGER NOT NULL,
    sequence   INTEGER NOT NULL UNIQUE,
    token      TEXT NOT NULL,
    actor      TEXT NOT NULL,
    evidence   TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(evidence)),
    fact       TEXT CHECK (fact IS NULL OR json_valid(fact)),
    reason     TEXT,
    intent_at  TEXT NOT NULL,
    settled_at TEXT, cause TEXT CHECK (cause IN ('facts', 'cancelled', 'given-up', 'again', 'restored')),
    UNIQUE (task_id, name, key, round),
    CHECK ((state IN ('applied', 'revoked')) = (settled_at IS NOT NULL))
);

CREATE TABLE environment_epoch (
    environment TEXT PRIMARY KEY,
    epoch       INTEGER NOT NULL CHECK (epoch >= 0)
);

CREATE TABLE events (
    id            INTEGER PRIMARY KEY,
    task_id       INTEGER REFERENCES tasks (id),
    type          TEXT NOT NULL,
    actor         TEXT NOT NULL,
    stage         TEXT,
    to_stage      TEXT,
    round         INTEGER,
    epoch         INTEGER,
    transition_id TEXT UNIQUE,
    data          TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
    at            TEXT NOT NULL
);

CREATE TABLE homes (
    home         TEXT PRIMARY KEY,           -- the folder's own id
    host         TEXT NOT NULL,              -- for people, as is the folder's place
    folder       TEXT NOT NULL,
    lost_after_s REAL NOT NULL,              -- silent for so long, nothing in it runs any more
    seen_at      TEXT NOT NULL               -- the last sign of life of any process of it
);

CREATE TABLE inbox (
    id          INTEGER PRIMARY KEY,
    source      TEXT NOT NULL,
    dedup_key   TEXT NOT NULL UNIQUE,
    kind        TEXT NOT NULL,
    task_id     INTEGER REFERENCES tasks (id),
    stage       TEXT,
    round       INTEGER,
    subject     TEXT,
    person      TEXT NOT NULL DEFAULT '',
    payload     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(payload)),
    received_at TEXT NOT NULL,
    handled_at  TEXT,
    outcome     TEXT
);

CREATE TABLE installation (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    installation_id TEXT NOT NULL,
    sequence        INTEGER NOT NULL DEFAULT 0,
    created_at      TEXT NOT NULL
, accepted TEXT, state_id TEXT);

CREATE TABLE installation_marks (
    repo       TEXT PRIMARY KEY REFERENCES repositories (name),
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),  -- of the last claim that is known to have worked
    start_id   TEXT,
    main_sha   TEXT,                                                -- main's tip when it was last compared
    accepted   INTEGER NOT NULL DEFAULT 0,                          -- merges up to this effect may be missing on main
    cause      TEXT CHECK (cause IN ('database', 'forge', 'stranger')),
    reason     TEXT,
    closed_at  TEXT,
    CHECK ((cause IS NULL) = (reason IS NULL) AND (cause IS NULL) = (closed_at IS NULL))
);

CREATE TABLE installation_starts (
    start_id TEXT PRIMARY KEY,
    at       TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE job_deps (
    task_id    INTEGER NOT NULL REFERENCES tasks (id),
    depends_on INTEGER NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (task_id, depends_on),
    CHECK (task_id <> depends_on)
) WITHOUT ROWID;

CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    task_id      INTEGER NOT NULL REFERENCES tasks (id),
    stage        TEXT NOT NULL,
    round        INTEGER NOT NULL CHECK (round >= 1),
    kind         TEXT NOT NULL CHECK (kind IN
                     ('analyst', 'architect', 'developer', 'reviewer', 'tester', 'deployer',
                      'ci', 'candidate-ci', 'staging-health', 'production-health')),
    status       TEXT NOT NULL DEFAULT 'queued'
                     CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    claims       INTEGER NOT NULL DEFAULT 0 CHECK (claims >= attempts),  -- never falls: tells one claim from the next
    max_attempts INTEGER NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    priority     INTEGER NOT NULL DEFAULT 0,
    subject      TEXT,
    brief        TEXT NOT NULL DEFAULT '',
    not_before   TEXT,
    claimed_by   TEXT,
    claimed_at   TEXT,
    finished_at  TEXT,
    error        TEXT,
    created_at   TEXT NOT NULL, undo INTEGER CHECK (undo IS NULL OR kind = 'production-health'), lane INTEGER REFERENCES lanes (id),
    CHECK ((status = 'running') = (claimed_by IS NOT NULL AND finished_at IS NULL))
);

CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY,
    repo      TEXT NOT NULL REFERENCES repositories (name),
    stage     TEXT NOT NULL,
    agent     TEXT NOT NULL,  -- which program an agent's job will start; '' for the orchestrator's own checks
    priority  INTEGER NOT NULL,
    served_at TEXT,           -- when a job was last claimed from it
    UNIQUE (repo, stage, agent, priority)
);

CREATE TABLE left_repositories (
    repo    TEXT PRIMARY KEY REFERENCES repositories (name),
    left_at TEXT NOT NULL
);

CREATE TABLE lessons (
    id      INTEGER PRIMARY KEY,
    task_id INTEGER REFERENCES tasks (id),
    source  TEXT NOT NULL CHECK (source IN ('auto', 'person')),
    kind    TEXT NOT NULL,
    text    TEXT NOT NULL,
    at      TEXT NOT NULL
);

CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY,
    stable_id  TEXT NOT NULL UNIQUE,
    task_id    INTEGER REFERENCES tasks (id),
    kind       TEXT NOT NULL CHECK (kind IN ('tracker.stage', 'tracker.comment', 'alert')),
    payload    TEXT NOT NULL CHECK (json_valid(payload)),
    attempts   INTEGER NOT NULL DEFAULT 0,
    not_before TEXT,
    sent_at    TEXT,
    parked_at  TEXT,
    error      TEXT,
    created_at TEXT NOT NULL
, channel TEXT CHECK (channel IS NULL OR kind = 'alert'), tracker TEXT CHECK (tracker IS NULL OR kind <> 'alert'));

CREATE TABLE outside_failures (
    task_id   INTEGER PRIMARY KEY REFERENCES tasks (id),
    effect_id INTEGER REFERENCES effects (id),
    reason    TEXT NOT NULL,
    attempts  INTEGER NOT NULL,
    since     TEXT NOT NULL,
    last_at   TEXT NOT NULL
);

CREATE TABLE own_commits (
    repo    TEXT NOT NULL,
    sha     TEXT NOT NULL,
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (repo, sha)
) WITHOUT ROWID;

CREATE TABLE processes (
    boot_id         TEXT PRIMARY KEY,
    host            TEXT NOT NULL,
    machine_boot_id TEXT NOT NULL,
    pid_namespace   TEXT NOT NULL,
    pid             INTEGER NOT NULL,
    start_ticks     INTEGER NOT NULL,
    role            TEXT NOT NULL,
    switches        TEXT NOT NULL DEFAULT '',
    started_at      TEXT NOT NULL,
    heartbeat_at    TEXT NOT NULL
);

CREATE TABLE repo_freeze (
    repo      TEXT PRIMARY KEY REFERENCES repositories (name),
    reason    TEXT NOT NULL,
    task_id   INTEGER REFERENCES tasks (id),
    lent_to   INTEGER REFERENCES tasks (id),
    frozen_at TEXT NOT NULL
);

CREATE TABLE repositories (
    name        TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    location    TEXT NOT NULL,
    prefix      TEXT NOT NULL UNIQUE CHECK (length(prefix) BETWEEN 1 AND 20),
    next_number INTEGER NOT NULL DEFAULT 1 CHECK (next_number >= 1),
    added_at    TEXT NOT NULL
, forge TEXT NOT NULL DEFAULT 'local' CHECK (forge IN ('local', 'gitea', 'github')));

CREATE TABLE silent_authorities (
    authority TEXT PRIMARY KEY,
    since     TEXT NOT NULL,
    told_at   TEXT NOT NULL
);

CREATE TABLE slots (
    name     TEXT PRIMARY KEY,
    repo     TEXT NOT NULL,
    holder   TEXT NOT NULL CHECK (holder IN ('task', 'freeze')),
    task_id  INTEGER REFERENCES tasks (id),
    taken_at TEXT NOT NULL,
    CHECK ((holder = 'task') = (task_id IS NOT NULL))
);

CREATE TABLE steps (
    task_id  INTEGER NOT NULL REFERENCES tasks (id),
    stage    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    step     TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(evidence)),
    at       TEXT NOT NULL,
    PRIMARY KEY (task_id, stage, round, step)
) WITHOUT ROWID;

CREATE TABLE task_documents (
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    name    TEXT NOT NULL,
    round   INTEGER NOT NULL,
    subject TEXT NOT NULL,
    content BLOB NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (task_id, name, round)
) WITHOUT ROWID;

CREATE TABLE task_edges (
    task_id    INTEGER NOT NULL REFERENCES tasks (id),
    from_stage TEXT NOT NULL,
    to_stage   TEXT NOT NULL,
    taken      INTEGER NOT NULL DEFAULT 0 CHECK (taken >= 0),
    forgiven   INTEGER NOT NULL DEFAULT 0 CHECK (forgiven BETWEEN 0 AND taken),  -- by a person's retry
    PRIMARY KEY (task_id, from_stage, to_stage)
) WITHOUT ROWID;

CREATE TABLE tasks (
    id           INTEGER PRIMARY KEY,
    work_item    TEXT NOT NULL UNIQUE,
    repo         TEXT NOT NULL REFERENCES repositories (name),
    tracker      TEXT NOT NULL DEFAULT 'local',
    external_id  TEXT,
    title        TEXT NOT NULL CHECK (length(trim(title)) > 0),
    body         TEXT NOT NULL DEFAULT '',
    labels       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(labels)),
    stage        TEXT NOT NULL DEFAULT 'created' CHECK (stage IN
                     ('created', 'analysis', 'architecture', 'development', 'review', 'testing',
                      'deploy-staging', 'deploy', 'done', 'cancelled')),
    round        INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1),
    track        TEXT CHECK (track IN ('full', 'fast')),
    priority     INTEGER NOT NULL DEFAULT 0,
    hold         TEXT CHECK (hold IN ('escalated', 'blocked', 'person', 'slot', 'frozen')),
    hold_reason  TEXT,
    hold_since   TEXT,
    branch       TEXT,
    base_sha     TEXT,
    config_sha   TEXT,
    head_sha     TEXT,
    gated_sha    TEXT,
    pr_number    INTEGER,
    cancelled_at TEXT,
    tidied_at    TEXT,
    created_at   TEXT NOT NULL,
    updated_at   TEXT NOT NULL, work_home TEXT, hold_cause TEXT
    CHECK (hold_cause IS NULL OR (hold IS NOT NULL AND hold_cause IN ('pull-request', 'checks', 'reviews'))),
    CHECK ((hold IS NULL) = (hold_since IS NULL))
);

CREATE TABLE tracker_projects (
    repo          TEXT PRIMARY KEY REFERENCES repositories (name),
    tracker       TEXT NOT NULL,
    location      TEXT NOT NULL,     -- for people, and for its adapter
    remote_id     TEXT NOT NULL,     -- what the tracker itself calls it
    our_user      TEXT,              -- our own user there
    read_to       TEXT,              -- what has changed up to then, by the tracker's clock, has been seen
    due_at        TEXT,              -- when it is read next; NULL: now
    failing_since TEXT,              -- nothing could be read since
    told          TEXT,              -- what a person knows of it, while that is so: 'failing', 'silent'
    heard_at      TEXT,              -- when a webhook last told of it
    changed_at    TEXT, left_at TEXT,              -- the last change of which one should have told
    UNIQUE (tracker, remote_id)
);

CREATE TABLE tracker_tickets (
    tracker     TEXT NOT NULL,
    external_id TEXT NOT NULL,
    repo        TEXT NOT NULL REFERENCES repositories (name),
    since       TEXT NOT NULL,       -- by the tracker's clock: what was said before is no word about the task
    seen        TEXT,                -- its last change that was read, by that clock
    hints       INTEGER NOT NULL DEFAULT 0,
    looked_at   TEXT,
    PRIMARY KEY (tracker, external_id)
);

CREATE TABLE transition_epoch (
    task_id INTEGER PRIMARY KEY REFERENCES tasks (id),
    epoch   INTEGER NOT NULL CHECK (epoch >= 0)
);

CREATE TABLE transition_lease (
    task_id       INTEGER PRIMARY KEY,
    owner         TEXT NOT NULL,
    owner_pid     INTEGER,
    owner_boot_id TEXT,
    run_id        INTEGER,
    stage         TEXT,
    acquired_at   TEXT NOT NULL DEFAULT (datetime('now'))
);

CREATE INDEX agent_runs_away ON agent_runs (home, task_id) WHERE home <> '' AND tidied_at IS NULL;

CREATE INDEX agent_runs_of_job ON agent_runs (job_id, id);

CREATE INDEX agent_runs_of_task ON agent_runs (task_id, id);

CREATE INDEX coverage_baseline_newest ON coverage_baseline (repo, id);

CREATE INDEX effects_merges
    ON effects (CAST(json_extract(evidence, '$.repo') AS TEXT),
                CAST(json_extract(evidence, '$.candidate.sequence') AS BIGINT))
    WHERE name = 'merge_pr' AND state = 'applied';

CREATE UNIQUE INDEX effects_one_merge_per_task ON effects (task_id)
    WHERE name = 'merge_pr' AND state = 'applied';

CREATE INDEX effects_self_starts ON effects (json_extract(evidence, '$.environment'), sequence)
    WHERE name = 'deploy_init' AND json_extract(evidence, '$.conditional_undo') IS NOT NULL;

CREATE INDEX effects_starts ON effects (json_extract(evidence, '$.environment'), state, sequence)
    WHERE name IN ('deploy_init', 'deploy_undo');

CREATE INDEX effects_starts_of_version
    ON effects (json_extract(evidence, '$.sha'), json_extract(evidence, '$.environment'))
    WHERE name IN ('deploy_init', 'deploy_undo');

CREATE INDEX effects_unsettled ON effects (task_id, id)
    WHERE state IN ('intended', 'revoking', 'in_doubt');

CREATE INDEX events_of_task ON events (task_id, id);

CREATE INDEX inbox_of_task ON inbox (task_id, id);

CREATE INDEX inbox_open ON inbox (task_id, id) WHERE handled_at IS NULL;

CREATE INDEX inbox_open_in_order ON inbox (id) WHERE handled_at IS NULL;

CREATE INDEX job_deps_reverse ON job_deps (depends_on);

CREATE INDEX jobs_of_round ON jobs (task_id, stage, round);

CREATE UNIQUE INDEX jobs_one_active_per_task ON jobs (task_id) WHERE status IN ('queued', 'running');

CREATE INDEX jobs_queue ON jobs (priority DESC, id) WHERE status = 'queued';

CREATE INDEX jobs_running ON jobs (id) WHERE status = 'running';

CREATE INDEX jobs_waiting ON jobs (lane, id) WHERE status = 'queued';

CREATE INDEX outbox_open ON outbox (id) WHERE sent_at IS NULL AND parked_at IS NULL;

CREATE INDEX outbox_parked ON outbox (id) WHERE parked_at IS NOT NULL;

CREATE INDEX outside_failures_of_effects ON outside_failures (effect_id) WHERE effect_id IS NOT NULL;

CREATE INDEX own_commits_of_task ON own_commits (task_id);

CREATE INDEX slots_of_task ON slots (task_id);

CREATE INDEX tasks_away ON tasks (work_home) WHERE work_home IS NOT NULL AND stage NOT IN ('done', 'cancelled');

CREATE INDEX tasks_of_branch ON tasks (repo, branch, id) WHERE branch IS NOT NULL;

CREATE INDEX tasks_of_pull_request ON tasks (repo, pr_number, id) WHERE pr_number IS NOT NULL;

CREATE INDEX tasks_of_ticket ON tasks (tracker, external_id, id) WHERE external_id IS NOT NULL;

CREATE UNIQUE INDEX tasks_one_open_per_ticket ON tasks (tracker, external_id)
    WHERE external_id IS NOT NULL AND stage NOT IN ('done', 'cancelled');

CREATE INDEX tasks_open ON tasks (repo, id) WHERE stage NOT IN ('done', 'cancelled');

CREATE INDEX tasks_open_in_order ON tasks (id) WHERE stage NOT IN ('done', 'cancelled');

CREATE INDEX tasks_untidied ON tasks (id)
    WHERE stage IN ('done', 'cancelled') AND tidied_at IS NULL;

CREATE INDEX tracker_tickets_hinted ON tracker_tickets (repo) WHERE hints > 0;

CREATE TRIGGER coverage_baseline_is_never_rewritten BEFORE UPDATE ON coverage_baseline
BEGIN SELECT RAISE(ABORT, 'a coverage baseline is never rewritten'); END;

CREATE TRIGGER coverage_baseline_never_falls BEFORE INSERT ON coverage_baseline
WHEN NEW.percent < (SELECT max(percent) FROM coverage_baseline WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'the coverage baseline may only rise'); END;

CREATE TRIGGER effects_are_never_forgotten BEFORE DELETE ON effects
BEGIN SELECT RAISE(ABORT, 'an effect is never forgotten'); END;

CREATE TRIGGER effects_move_forward BEFORE UPDATE OF state ON effects
WHEN NEW.state <> OLD.state AND NOT (
       (OLD.state = 'intended' AND NEW.state IN ('applied', 'revoking', 'in_doubt'))
    OR (OLD.state = 'revoking' AND NEW.state IN ('applied', 'revoked', 'in_doubt'))
    OR (OLD.state = 'in_doubt' AND NEW.state IN ('applied', 'intended', 'revoking')))
BEGIN SELECT RAISE(ABORT, 'an effect does not move that way'); END;

CREATE TRIGGER start_has_its_place BEFORE INSERT ON effects
WHEN NEW.name = 'deploy_init' AND NEW.state = 'intended' AND NOT EXISTS
     (SELECT 1 FROM slots WHERE task_id = NEW.task_id
      AND name = 'environment:' || json_extract(NEW.evidence, '$.environment'))
BEGIN SELECT RAISE(ABORT, 'the environment is not the task''s: nothing is started there'); END;

CREATE TRIGGER environment_epoch_never_falls BEFORE UPDATE ON environment_epoch
WHEN NEW.epoch <= OLD.epoch BEGIN SELECT RAISE(ABORT, 'an environment''s epoch only rises'); END;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

CREATE TRIGGER installation_sequence_only_rises BEFORE UPDATE OF sequence ON installation
WHEN NEW.sequence <= OLD.sequence BEGIN SELECT RAISE(ABORT, 'the ledger''s number only rises'); END;

CREATE TRIGGER installation_marks_only_rise BEFORE UPDATE OF generation ON installation_marks
WHEN NEW.generation < OLD.generation BEGIN SELECT RAISE(ABORT, 'a repository''s generation only rises'); END;

CREATE TRIGGER freeze_is_lent_within_its_repository BEFORE UPDATE OF lent_to ON repo_freeze
WHEN NEW.lent_to IS NOT NULL AND NOT EXISTS
     (SELECT 1 FROM tasks WHERE id = NEW.lent_to AND repo = NEW.repo
      AND stage NOT IN ('deploy', 'done', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'lent to a task of another repository, or one that is merged or has ended'); END;

CREATE TRIGGER freeze_is_not_lent_over_an_undo BEFORE UPDATE OF lent_to ON repo_freeze
WHEN NEW.lent_to IS NOT NULL AND NEW.lent_to IS NOT OLD.lent_to
 AND EXISTS (SELECT 1 FROM effects JOIN tasks ON tasks.id = task_id WHERE repo = NEW.repo
             AND name = 'deploy_undo' AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an undo is unsettled: the slot is not lent'); END;

CREATE TRIGGER freeze_stays_for_an_undo BEFORE DELETE ON repo_freeze
WHEN EXISTS (SELECT 1 FROM effects JOIN tasks ON tasks.id = task_id WHERE repo = OLD.repo
             AND name = 'deploy_undo' AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an undo is unsettled: the freeze stays'); END;

CREATE TRIGGER frozen_slot_is_lent_when_moved BEFORE UPDATE ON slots
WHEN NEW.holder = 'task' AND NEW.name = 'merge:' || NEW.repo AND NEW.task_id IS NOT OLD.task_id
 AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo AND lent_to IS NOT NEW.task_id)
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task_id AND stage = 'deploy')
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is not lent to this task'); END;

CREATE TRIGGER frozen_slot_is_lent_when_taken AFTER INSERT ON slots
WHEN NEW.holder = 'task' AND NEW.name = 'merge:' || NEW.repo
 AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo AND lent_to IS NOT NEW.task_id)
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task_id AND stage = 'deploy')
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is not lent to this task'); END;

CREATE TRIGGER frozen_slot_is_never_free BEFORE DELETE ON slots
WHEN OLD.name = 'merge:' || OLD.repo AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = OLD.repo)
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is never free'); END;

CREATE TRIGGER place_stays_for_a_start BEFORE DELETE ON slots
WHEN OLD.name LIKE 'environment:%' AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = OLD.task_id AND name IN ('deploy_init', 'deploy_undo')
      AND state IN ('intended', 'revoking', 'in_doubt')
      AND 'environment:' || json_extract(evidence, '$.environment') = OLD.name)
BEGIN SELECT RAISE(ABORT, 'a start there is unsettled: the place stays'); END;

CREATE TRIGGER slot_is_given_to_a_freeze BEFORE UPDATE ON slots
WHEN NEW.holder = 'freeze' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'there is no freeze to give the slot to'); END;

CREATE TRIGGER slot_is_kept_for_a_freeze AFTER INSERT ON slots
WHEN NEW.holder = 'freeze' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'there is no freeze to keep the slot for'); END;

CREATE TRIGGER stage_deploy_needs_the_merge BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('deploy', 'done') AND NOT EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'merge_pr' AND state = 'applied')
BEGIN SELECT RAISE(ABORT, 'merge_pr is not applied: no stage deploy or done'); END;

CREATE TRIGGER stage_ends_its_loan BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('done', 'cancelled') AND EXISTS (SELECT 1 FROM repo_freeze WHERE lent_to = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the merge slot is still lent to the task'); END;

CREATE TRIGGER stage_frees_its_slots BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('development', 'testing', 'cancelled', 'done') AND EXISTS
     (SELECT 1 FROM slots WHERE task_id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the task still holds a slot'); END;

CREATE TRIGGER stage_never_back_after_merge BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage NOT IN ('deploy', 'done') AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'merge_pr' AND state = 'applied')
BEGIN SELECT RAISE(ABORT, 'merge_pr is applied: the task goes forward'); END;

CREATE TRIGGER stage_terminal_is_final BEFORE UPDATE OF stage ON tasks
WHEN OLD.stage IN ('done', 'cancelled') AND NEW.stage <> OLD.stage
BEGIN SELECT RAISE(ABORT, 'a terminal stage is final'); END;

CREATE TRIGGER stage_waits_for_conditional_undo BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage = 'done' AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'deploy_init' AND state = 'applied'
      AND json_extract(evidence, '$.conditional_undo') IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM effects AS undo WHERE undo.state IN ('applied', 'revoked')
                      AND undo.sequence = json_extract(effects.evidence, '$.conditional_undo.sequence')))
BEGIN SELECT RAISE(ABORT, 'its deploy may still be undone: not done'); END;

CREATE TRIGGER stage_waits_for_effects BEFORE UPDATE OF stage ON tasks
WHEN EXISTS (SELECT 1 FROM effects WHERE task_id = NEW.id AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an effect is unsettled: the stage stays'); END;

CREATE TRIGGER transition_epoch_never_falls BEFORE UPDATE ON transition_epoch
WHEN NEW.epoch <= OLD.epoch OR NEW.task_id <> OLD.task_id
BEGIN SELECT RAISE(ABORT, 'a task''s epoch only rises'); END;

CREATE TRIGGER transition_epoch_stays BEFORE DELETE ON transition_epoch
BEGIN SELECT RAISE(ABORT, 'a task''s epoch is never forgotten'); END;
