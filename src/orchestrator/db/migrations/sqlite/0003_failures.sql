-- What keeps failing outside, for people: one row for each task that cannot go on because of it.

CREATE TABLE IF NOT EXISTS outside_failures (
    task_id   INTEGER PRIMARY KEY REFERENCES tasks (id),
    effect_id INTEGER REFERENCES effects (id),
    reason    TEXT NOT NULL,
    attempts  INTEGER NOT NULL,
    since     TEXT NOT NULL,
    last_at   TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS outside_failures_of_effects ON outside_failures (effect_id) WHERE effect_id IS NOT NULL;
