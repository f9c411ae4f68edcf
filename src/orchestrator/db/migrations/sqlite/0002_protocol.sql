-- What the ownership and effects protocol needs beside the seed's tables.

CREATE TABLE IF NOT EXISTS installation (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    installation_id TEXT NOT NULL,
    sequence        INTEGER NOT NULL DEFAULT 0,
    created_at      TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS transition_epoch (
    task_id INTEGER PRIMARY KEY REFERENCES tasks (id),
    epoch   INTEGER NOT NULL CHECK (epoch >= 0)
);
CREATE TRIGGER IF NOT EXISTS transition_epoch_never_falls BEFORE UPDATE ON transition_epoch
WHEN NEW.epoch <= OLD.epoch OR NEW.task_id <> OLD.task_id
BEGIN SELECT RAISE(ABORT, 'a task''s epoch only rises'); END;
CREATE TRIGGER IF NOT EXISTS transition_epoch_stays BEFORE DELETE ON transition_epoch
BEGIN SELECT RAISE(ABORT, 'a task''s epoch is never forgotten'); END;

CREATE TABLE IF NOT EXISTS processes (
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

CREATE TABLE IF NOT EXISTS effects (
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
    settled_at TEXT,
    UNIQUE (task_id, name, key, round),
    CHECK ((state IN ('applied', 'revoked')) = (settled_at IS NOT NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS effects_one_merge_per_task ON effects (task_id)
    WHERE name = 'merge_pr' AND state = 'applied';
CREATE INDEX IF NOT EXISTS effects_unsettled ON effects (task_id, id)
    WHERE state IN ('intended', 'revoking', 'in_doubt');
CREATE TRIGGER IF NOT EXISTS effects_move_forward BEFORE UPDATE OF state ON effects
WHEN NEW.state <> OLD.state AND NOT (
       (OLD.state = 'intended' AND NEW.state IN ('applied', 'revoking', 'in_doubt'))
    OR (OLD.state = 'revoking' AND NEW.state IN ('applied', 'revoked', 'in_doubt'))
    OR (OLD.state = 'in_doubt' AND NEW.state IN ('applied', 'intended', 'revoking')))
BEGIN SELECT RAISE(ABORT, 'an effect does not move that way'); END;
CREATE TRIGGER IF NOT EXISTS effects_are_never_forgotten BEFORE DELETE ON effects
BEGIN SELECT RAISE(ABORT, 'an effect is never forgotten'); END;

CREATE TABLE IF NOT EXISTS slots (
    name     TEXT PRIMARY KEY,
    repo     TEXT NOT NULL,
    holder   TEXT NOT NULL CHECK (holder IN ('task', 'freeze')),
    task_id  INTEGER REFERENCES tasks (id),
    taken_at TEXT NOT NULL,
    CHECK ((holder = 'task') = (task_id IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS slots_of_task ON slots (task_id);

CREATE TABLE IF NOT EXISTS environment_epoch (
    environment TEXT PRIMARY KEY,
    epoch       INTEGER NOT NULL CHECK (epoch >= 0)
);
CREATE TRIGGER IF NOT EXISTS environment_epoch_never_falls BEFORE UPDATE ON environment_epoch
WHEN NEW.epoch <= OLD.epoch BEGIN SELECT RAISE(ABORT, 'an environment''s epoch only rises'); END;

CREATE TABLE IF NOT EXISTS candidates (
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

-- Passed steps of a round: which gate said what on which evidence. What is marked is not judged again.
CREATE TABLE IF NOT EXISTS steps (
    task_id  INTEGER NOT NULL REFERENCES tasks (id),
    stage    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    step     TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(evidence)),
    at       TEXT NOT NULL,
    PRIMARY KEY (task_id, stage, round, step)
) WITHOUT ROWID;

-- How often each edge was taken: rounds and bounded rejections come from here.
CREATE TABLE IF NOT EXISTS task_edges (
    task_id    INTEGER NOT NULL REFERENCES tasks (id),
    from_stage TEXT NOT NULL,
    to_stage   TEXT NOT NULL,
    taken      INTEGER NOT NULL DEFAULT 0 CHECK (taken >= 0),
    forgiven   INTEGER NOT NULL DEFAULT 0 CHECK (forgiven BETWEEN 0 AND taken),  -- by a person's retry
    PRIMARY KEY (task_id, from_stage, to_stage)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS checks (
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

CREATE TABLE IF NOT EXISTS own_commits (
    repo    TEXT NOT NULL,
    sha     TEXT NOT NULL,
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (repo, sha)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS task_documents (
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    name    TEXT NOT NULL,
    round   INTEGER NOT NULL,
    subject TEXT NOT NULL,
    content BLOB NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (task_id, name, round)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS inbox (
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
CREATE INDEX IF NOT EXISTS inbox_open ON inbox (task_id, id) WHERE handled_at IS NULL;

CREATE TABLE IF NOT EXISTS approvals (
    task_id  INTEGER NOT NULL REFERENCES tasks (id),
    kind     TEXT NOT NULL CHECK (kind IN ('approved', 'confirm-deploy')),
    stage    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    subject  TEXT NOT NULL,
    person   TEXT NOT NULL,
    at       TEXT NOT NULL,
    PRIMARY KEY (task_id, kind, stage, round, subject)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS outbox (
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
);
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (id) WHERE sent_at IS NULL AND parked_at IS NULL;

-- The last guard of the laws: whatever the code does, these stages cannot be written.
CREATE TRIGGER IF NOT EXISTS stage_never_back_after_merge BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage NOT IN ('deploy', 'done') AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'merge_pr' AND state = 'applied')
BEGIN SELECT RAISE(ABORT, 'merge_pr is applied: the task goes forward'); END;
CREATE TRIGGER IF NOT EXISTS stage_waits_for_effects BEFORE UPDATE OF stage ON tasks
WHEN EXISTS (SELECT 1 FROM effects WHERE task_id = NEW.id AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an effect is unsettled: the stage stays'); END;
CREATE TRIGGER IF NOT EXISTS stage_frees_its_slots BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('development', 'testing', 'cancelled', 'done') AND EXISTS
     (SELECT 1 FROM slots WHERE task_id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the task still holds a slot'); END;
CREATE TRIGGER IF NOT EXISTS stage_deploy_needs_the_merge BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('deploy', 'done') AND NOT EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'merge_pr' AND state = 'applied')
BEGIN SELECT RAISE(ABORT, 'merge_pr is not applied: no stage deploy or done'); END;
CREATE TRIGGER IF NOT EXISTS stage_terminal_is_final BEFORE UPDATE OF stage ON tasks
WHEN OLD.stage IN ('done', 'cancelled') AND NEW.stage <> OLD.stage
BEGIN SELECT RAISE(ABORT, 'a terminal stage is final'); END;
