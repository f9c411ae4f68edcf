-- An alert has a row for each channel, so that none of them holds or repeats another (law 7).

ALTER TABLE outbox ADD COLUMN channel TEXT CHECK (channel IS NULL OR kind = 'alert');  -- NULL: the log, or a tracker

CREATE TABLE IF NOT EXISTS alert_channels (
    name TEXT PRIMARY KEY
);
