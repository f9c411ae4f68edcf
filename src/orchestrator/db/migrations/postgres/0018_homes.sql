-- A worker has a state folder of its own, its home. What lies in it nobody else sees; '' is the folder that the
-- orchestrators share.

CREATE TABLE homes (
    home         TEXT PRIMARY KEY,           -- the folder's own id
    host         TEXT NOT NULL,              -- for people, as is the folder's place
    folder       TEXT NOT NULL,
    lost_after_s DOUBLE PRECISION NOT NULL,  -- silent for so long, nothing in it runs any more
    seen_at      TEXT NOT NULL               -- the last sign of life of any process of it
);

ALTER TABLE agent_runs ADD COLUMN home TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_runs ADD COLUMN tidied_at TEXT; -- of a worker's: when its home was tidied up after it
CREATE INDEX agent_runs_away ON agent_runs (home, task_id) WHERE home <> '' AND tidied_at IS NULL;

-- Where a task's work lies that no forge has; NULL: the forge has all of it.
ALTER TABLE tasks ADD COLUMN work_home TEXT;
CREATE INDEX tasks_away ON tasks (work_home) WHERE work_home IS NOT NULL;
UPDATE tasks SET work_home = '' WHERE head_sha IS NOT NULL AND stage NOT IN ('done', 'cancelled');
