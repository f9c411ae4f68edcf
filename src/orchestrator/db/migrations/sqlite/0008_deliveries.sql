-- Rows of the inbox that a tracker or a forge has sent, and how often they have been looked at. A row of the inbox
-- without one of these is a person's word, already bound and waiting for the engine.

CREATE TABLE IF NOT EXISTS deliveries (
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
CREATE INDEX IF NOT EXISTS inbox_open_in_order ON inbox (id) WHERE handled_at IS NULL;
CREATE INDEX IF NOT EXISTS inbox_of_task ON inbox (task_id, id);

-- How a delivery finds its task.
CREATE INDEX IF NOT EXISTS tasks_of_ticket ON tasks (tracker, external_id, id) WHERE external_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_of_branch ON tasks (repo, branch, id) WHERE branch IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_of_pull_request ON tasks (repo, pr_number, id) WHERE pr_number IS NOT NULL;
