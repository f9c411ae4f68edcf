-- name: failing
SELECT effects.*, tasks.work_item, failing.since AS failing_since, failing.reason AS failure
FROM outside_failures AS failing
JOIN effects ON effects.id = failing.effect_id JOIN tasks ON tasks.id = effects.task_id
WHERE effects.state IN ('intended', 'revoking', 'in_doubt') ORDER BY failing.since, effects.id LIMIT 1000;

-- name: silent
SELECT authority, since FROM silent_authorities ORDER BY authority;

-- name: tell
INSERT INTO silent_authorities (authority, since, told_at) VALUES (:authority, :since, utc_now())
ON CONFLICT (authority) DO NOTHING;

-- name: heard
DELETE FROM silent_authorities WHERE authority = :authority AND since = :since;
