-- name: lift_sequence
UPDATE installation SET sequence = :sequence WHERE one = 1 AND sequence < :sequence;

-- name: lift_environment
INSERT INTO environment_epoch (environment, epoch) VALUES (:environment, :epoch)
ON CONFLICT (environment) DO UPDATE SET epoch = excluded.epoch WHERE environment_epoch.epoch < excluded.epoch;

-- name: name_messages_anew
UPDATE installation SET accepted = :token WHERE one = 1;

-- name: lift_number
UPDATE repositories SET next_number = :number + 1 WHERE name = :repo AND next_number <= :number;

-- name: lift_rounds
INSERT INTO task_edges (task_id, from_stage, to_stage, taken, forgiven)
SELECT :task_id, 'restored', 'deploy-staging', missing, missing
FROM (SELECT :round - coalesce(sum(taken), 0) AS missing FROM task_edges
      WHERE task_id = :task_id AND to_stage = 'deploy-staging') AS rounds
WHERE missing > 0
ON CONFLICT (task_id, from_stage, to_stage) DO UPDATE
SET taken = task_edges.taken + excluded.taken, forgiven = task_edges.forgiven + excluded.taken;

-- name: add_task
INSERT INTO tasks (id, work_item, repo, title, stage, created_at, updated_at)
VALUES (CASE WHEN EXISTS (SELECT 1 FROM tasks WHERE id = :task_id) THEN NULL ELSE :task_id END,
        :work_item, :repo, :title, 'created', utc_now(), utc_now())
RETURNING id;

-- name: free_round
SELECT CASE WHEN EXISTS (SELECT 1 FROM candidates WHERE task_id = :task_id AND round = :round) OR :round IS NULL
            THEN (SELECT coalesce(max(round), 0) + 1 FROM candidates WHERE task_id = :task_id) ELSE :round END AS round;

-- name: sequence_taken
SELECT 1 AS taken FROM candidates WHERE sequence = :sequence
UNION ALL SELECT 1 FROM effects WHERE sequence = :sequence;

-- name: add_effect
INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, fact, reason, intent_at, settled_at)
VALUES (:task_id, :name, :key, :round, :state, 0, :sequence, :token, 'restored', :evidence, :fact, 'found after a restore',
        utc_now(), utc_now())
ON CONFLICT DO NOTHING;

-- name: cancel_queued
UPDATE jobs SET status = 'cancelled', finished_at = utc_now(), error = :reason
WHERE task_id = :task_id AND status = 'queued';

-- name: accept_trace
INSERT INTO accepted_traces (name, at) VALUES (:name, utc_now()) ON CONFLICT (name) DO NOTHING;

-- name: accept_main
UPDATE installation_marks SET accepted = (SELECT coalesce(max(id), 0) FROM effects) WHERE repo = :repo;

-- name: next_round
SELECT 1 + coalesce(sum(taken), 0) AS round FROM task_edges WHERE task_id = :task_id AND to_stage = :stage;

-- name: forget_leases
DELETE FROM transition_lease WHERE owner_boot_id IS NOT :boot_id;

-- name: forget_processes
DELETE FROM processes WHERE boot_id <> :boot_id;
