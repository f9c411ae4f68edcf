-- A task may be held for what others say at its forge. SQLite cannot widen a CHECK: a column takes the other's place.

ALTER TABLE tasks ADD COLUMN held_for TEXT
    CHECK (held_for IS NULL OR (hold IS NOT NULL AND held_for IN ('pull-request', 'checks', 'reviews')));
UPDATE tasks SET held_for = hold_cause WHERE hold_cause IS NOT NULL;
ALTER TABLE tasks DROP COLUMN hold_cause;
ALTER TABLE tasks RENAME COLUMN held_for TO hold_cause;
