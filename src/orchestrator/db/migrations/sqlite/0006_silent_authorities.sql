-- Places outside of which a person has been told that they cannot be read; gone once nothing is in doubt there any more.

CREATE TABLE IF NOT EXISTS silent_authorities (
    authority TEXT PRIMARY KEY,
    since     TEXT NOT NULL,
    told_at   TEXT NOT NULL
);
