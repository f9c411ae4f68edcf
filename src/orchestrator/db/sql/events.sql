-- name: append
INSERT INTO events (task_id, type, actor, stage, to_stage, round, epoch, transition_id, data, at)
VALUES (:task_id, :type, :actor, :stage, :to_stage, :round, :epoch, :transition_id, :data, utc_now());

-- name: of_task
SELECT * FROM events WHERE task_id = :task_id AND id > :after ORDER BY id LIMIT :limit;

-- name: drifts
SELECT * FROM events WHERE task_id = :task_id AND type IN ('drift.seen', 'drift.over') ORDER BY id;

-- name: by_transition
SELECT id FROM events WHERE transition_id = :transition_id;

-- name: lesson
INSERT INTO lessons (task_id, source, kind, text, at) VALUES (:task_id, :source, :kind, :text, utc_now());
