-- The tables the seeds name, and the registry of repositories they presuppose.
-- Times are UTC text of fixed width, written by utc_now(), which is the injected clock on SQLite.

CREATE TABLE IF NOT EXISTS repositories (
    name        TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    forge       TEXT NOT NULL CHECK (forge IN ('local')),
    location    TEXT NOT NULL,
    prefix      TEXT NOT NULL UNIQUE CHECK (length(prefix) BETWEEN 1 AND 20),
    next_number INTEGER NOT NULL DEFAULT 1 CHECK (next_number >= 1),
    added_at    TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS tasks (
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
    updated_at   TEXT NOT NULL,
    CHECK ((hold IS NULL) = (hold_since IS NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS tasks_one_open_per_ticket ON tasks (tracker, external_id)
    WHERE external_id IS NOT NULL AND stage NOT IN ('done', 'cancelled');
CREATE INDEX IF NOT EXISTS tasks_untidied ON tasks (id)
    WHERE stage IN ('done', 'cancelled') AND tidied_at IS NULL;
CREATE INDEX IF NOT EXISTS tasks_open ON tasks (repo, id) WHERE stage NOT IN ('done', 'cancelled');

CREATE TABLE IF NOT EXISTS jobs (
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
    created_at   TEXT NOT NULL,
    CHECK ((status = 'running') = (claimed_by IS NOT NULL AND finished_at IS NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_one_active_per_task ON jobs (task_id) WHERE status IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS jobs_queue ON jobs (priority DESC, id) WHERE status = 'queued';
CREATE INDEX IF NOT EXISTS jobs_running ON jobs (claimed_by, id) WHERE status = 'running';
CREATE INDEX IF NOT EXISTS jobs_of_round ON jobs (task_id, stage, round);

CREATE TABLE IF NOT EXISTS agent_runs (
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
    finished_at        TEXT,
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
);
CREATE INDEX IF NOT EXISTS agent_runs_of_task ON agent_runs (task_id, id);
CREATE INDEX IF NOT EXISTS agent_runs_of_job ON agent_runs (job_id, id);

CREATE TABLE IF NOT EXISTS events (
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
CREATE INDEX IF NOT EXISTS events_of_task ON events (task_id, id);
CREATE TRIGGER IF NOT EXISTS events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

CREATE TABLE IF NOT EXISTS job_deps (
    task_id    INTEGER NOT NULL REFERENCES tasks (id),
    depends_on INTEGER NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (task_id, depends_on),
    CHECK (task_id <> depends_on)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_deps_reverse ON job_deps (depends_on);

CREATE TABLE IF NOT EXISTS coverage_baseline (
    id         INTEGER PRIMARY KEY,
    repo       TEXT NOT NULL REFERENCES repositories (name),
    merged_sha TEXT NOT NULL,
    percent    REAL NOT NULL CHECK (percent BETWEEN 0 AND 100),
    measured   REAL NOT NULL CHECK (measured BETWEEN 0 AND 100),
    task_id    INTEGER REFERENCES tasks (id),
    at         TEXT NOT NULL,
    UNIQUE (repo, merged_sha)
);
CREATE INDEX IF NOT EXISTS coverage_baseline_newest ON coverage_baseline (repo, id);
CREATE TRIGGER IF NOT EXISTS coverage_baseline_never_falls BEFORE INSERT ON coverage_baseline
WHEN NEW.percent < (SELECT max(percent) FROM coverage_baseline WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'the coverage baseline may only rise'); END;
CREATE TRIGGER IF NOT EXISTS coverage_baseline_is_never_rewritten BEFORE UPDATE ON coverage_baseline
BEGIN SELECT RAISE(ABORT, 'a coverage baseline is never rewritten'); END;

CREATE TABLE IF NOT EXISTS repo_freeze (
    repo      TEXT PRIMARY KEY REFERENCES repositories (name),
    reason    TEXT NOT NULL,
    task_id   INTEGER REFERENCES tasks (id),
    lent_to   INTEGER REFERENCES tasks (id),
    frozen_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS lessons (
    id      INTEGER PRIMARY KEY,
    task_id INTEGER REFERENCES tasks (id),
    source  TEXT NOT NULL CHECK (source IN ('auto', 'person')),
    kind    TEXT NOT NULL,
    text    TEXT NOT NULL,
    at      TEXT NOT NULL
);

-- Exactly the seed's seven columns; `owner` is checked in code.
CREATE TABLE IF NOT EXISTS transition_lease (
    task_id       INTEGER PRIMARY KEY,
    owner         TEXT NOT NULL,
    owner_pid     INTEGER,
    owner_boot_id TEXT,
    run_id        INTEGER,
    stage         TEXT,
    acquired_at   TEXT NOT NULL DEFAULT (datetime('now'))
);
