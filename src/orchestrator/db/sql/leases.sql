-- name: acquire
INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id, run_id, stage, acquired_at)
VALUES (:task_id, :owner, :owner_pid, :owner_boot_id, :run_id, :stage, datetime(utc_now()))
ON CONFLICT (task_id) DO UPDATE
SET owner = excluded.owner, owner_pid = excluded.owner_pid, owner_boot_id = excluded.owner_boot_id,
    run_id = excluded.run_id, stage = excluded.stage, acquired_at = excluded.acquired_at
WHERE transition_lease.owner IS :judged_owner AND transition_lease.owner_pid IS :judged_pid
  AND transition_lease.owner_boot_id IS :judged_boot_id AND transition_lease.run_id IS :judged_run_id
  AND transition_lease.stage IS :judged_stage AND transition_lease.acquired_at IS :judged_acquired_at;

-- name: get
SELECT transition_lease.*, tasks.work_item FROM transition_lease LEFT JOIN tasks ON tasks.id = task_id
WHERE task_id = :task_id;

-- name: all
SELECT transition_lease.*, tasks.work_item, tasks.stage AS task_stage FROM transition_lease
LEFT JOIN tasks ON tasks.id = transition_lease.task_id ORDER BY transition_lease.task_id LIMIT 1000;

-- name: release
DELETE FROM transition_lease WHERE task_id = :task_id AND owner_boot_id = :boot_id
  AND EXISTS (SELECT 1 FROM transition_epoch WHERE task_id = :task_id AND epoch = :epoch);

-- name: remove
DELETE FROM transition_lease WHERE task_id = :task_id AND owner IS :owner AND owner_pid IS :pid
  AND owner_boot_id IS :boot_id AND run_id IS :run_id AND stage IS :stage AND acquired_at IS :acquired_at;

-- name: epoch
SELECT epoch FROM transition_epoch WHERE task_id = :task_id /* postgres: FOR UPDATE */;

-- name: raise_epoch
UPDATE transition_epoch SET epoch = epoch + 1 WHERE task_id = :task_id AND epoch = :epoch;

-- name: register_process
INSERT INTO processes (boot_id, host, machine_boot_id, pid_namespace, pid, start_ticks, role, switches, started_at, heartbeat_at)
VALUES (:boot_id, :host, :machine_boot_id, :pid_namespace, :pid, :start_ticks, :role, :switches, utc_now(), utc_now());

-- name: heartbeat
UPDATE processes SET heartbeat_at = utc_now() WHERE boot_id = :boot_id RETURNING heartbeat_at;

-- name: now
SELECT utc_now() AS now;

-- name: forget_process
DELETE FROM processes WHERE boot_id = :boot_id;

-- name: process
SELECT *, heartbeat_at < utc_after(-:ttl_s) AS silent FROM processes WHERE boot_id = :boot_id;

-- name: processes
SELECT *, heartbeat_at < utc_after(-:ttl_s) AS silent FROM processes ORDER BY started_at LIMIT 1000;
