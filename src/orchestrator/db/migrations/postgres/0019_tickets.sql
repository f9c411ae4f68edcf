-- Tickets that lie at a tracker elsewhere: which project there is a repository's, and what has been read of it.

CREATE TABLE IF NOT EXISTS tracker_projects (
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
    changed_at    TEXT,              -- the last change of which one should have told
    UNIQUE (tracker, remote_id)
);

CREATE TABLE IF NOT EXISTS tracker_tickets (
    tracker     TEXT NOT NULL,
    external_id TEXT NOT NULL,
    repo        TEXT NOT NULL REFERENCES repositories (name),
    since       TEXT NOT NULL,       -- by the tracker's clock: what was said before is no word about the task
    seen        TEXT,                -- its last change that was read, by that clock
    hints       BIGINT NOT NULL DEFAULT 0,
    looked_at   TEXT,
    PRIMARY KEY (tracker, external_id)
);
CREATE INDEX IF NOT EXISTS tracker_tickets_hinted ON tracker_tickets (repo) WHERE hints > 0;

-- What a ticket is told leaves by a way of its own, so that a tracker that is away holds nothing else (law 7).
ALTER TABLE outbox ADD COLUMN tracker TEXT CHECK (tracker IS NULL OR kind <> 'alert');  -- NULL: the local one
