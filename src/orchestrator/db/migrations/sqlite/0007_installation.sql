-- Which start of this database has claimed which repository, and why nothing is done for one (DESIGN §6).

CREATE TABLE IF NOT EXISTS installation_starts (
    start_id TEXT PRIMARY KEY,
    at       TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS installation_marks (
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
CREATE TRIGGER IF NOT EXISTS installation_marks_only_rise BEFORE UPDATE OF generation ON installation_marks
WHEN NEW.generation < OLD.generation BEGIN SELECT RAISE(ABORT, 'a repository''s generation only rises'); END;
CREATE TRIGGER IF NOT EXISTS installation_sequence_only_rises BEFORE UPDATE OF sequence ON installation
WHEN NEW.sequence <= OLD.sequence BEGIN SELECT RAISE(ABORT, 'the ledger''s number only rises'); END;

-- What was found outside and could not be imported, and that a person has accepted all the same.
CREATE TABLE IF NOT EXISTS accepted_traces (
    name TEXT PRIMARY KEY,
    at   TEXT NOT NULL
) WITHOUT ROWID;
