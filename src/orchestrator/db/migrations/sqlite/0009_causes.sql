-- Why an effect is given up, and why a task is held, where what follows depends on it; the reasons beside are for people.

ALTER TABLE effects ADD COLUMN cause TEXT CHECK (cause IN ('facts', 'cancelled', 'given-up', 'again', 'restored'));
UPDATE effects SET cause = CASE WHEN reason GLOB 'cancelled by *' THEN 'cancelled'
                                WHEN reason GLOB 'given up by *' THEN 'given-up'
                                WHEN reason GLOB 'done again for *' THEN 'again'
                                WHEN reason GLOB 'restored: *' THEN 'restored'
                                ELSE 'facts' END
WHERE state IN ('revoking', 'revoked') AND cause IS NULL;

ALTER TABLE tasks ADD COLUMN hold_cause TEXT
    CHECK (hold_cause IS NULL OR (hold IS NOT NULL AND hold_cause IN ('pull-request')));
UPDATE tasks SET hold_cause = 'pull-request'
WHERE hold = 'blocked' AND hold_reason GLOB 'its pull request [0-9]*' AND hold_cause IS NULL;
