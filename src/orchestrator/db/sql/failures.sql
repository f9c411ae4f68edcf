-- name: note
INSERT INTO outside_failures (task_id, effect_id, reason, attempts, since, last_at)
VALUES (:task_id,
        (SELECT min(id) FROM effects WHERE task_id = :task_id AND state IN ('intended', 'revoking', 'in_doubt')),
        :reason, 1, utc_now(), utc_now())
ON CONFLICT (task_id) DO UPDATE SET
    attempts = CASE WHEN outside_failures.effect_id IS excluded.effect_id THEN outside_failures.attempts + 1 ELSE 1 END,
    since = CASE WHEN outside_failures.effect_id IS excluded.effect_id THEN outside_failures.since ELSE excluded.since END,
    effect_id = excluded.effect_id, reason = excluded.reason, last_at = excluded.last_at;

-- name: of_task
SELECT * FROM outside_failures WHERE task_id = :task_id;

-- name: forget
DELETE FROM outside_failures WHERE task_id = :task_id;
