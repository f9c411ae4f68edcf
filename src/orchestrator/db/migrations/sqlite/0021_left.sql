-- Disconnected: no ticket is taken any more, of a repository, or of its project at a tracker. What there was stays.

CREATE TABLE IF NOT EXISTS left_repositories (
    repo    TEXT PRIMARY KEY REFERENCES repositories (name),
    left_at TEXT NOT NULL
);
ALTER TABLE tracker_projects ADD COLUMN left_at TEXT;
