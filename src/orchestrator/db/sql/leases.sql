-- A row that is no text and no number (SQLite takes anything, and disks are damaged) is read and compared as the bytes
-- it is.

-- name: acquire
INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id, run_id, stage, acquired_at)
VALUES (:task_id, :owner, :owner_pid, :owner_boot_id, :run_id, :stage, datetime(utc_now()))
ON CONFLICT (task_id) DO UPDATE
SET owner = excluded.owner, owner_pid = excluded.owner_pid, owner_boot_id = excluded.owner_boot_id,
    run_id = excluded.run_id, stage = excluded.stage, acquired_at = excluded.acquired_at
WHERE CAST(transition_lease.owner AS BLOB) IS CAST(:judged_owner AS BLOB)
  AND CAST(transition_lease.owner_pid AS BLOB) IS CAST(:judged_pid AS BLOB)
  AND CAST(transition_lease.owner_boot_id AS BLOB) IS CAST(:judged_boot_id AS BLOB)
  AND CAST(transition_lease.run_id AS BLOB) IS CAST(:judged_run_id AS BLOB)
  AND CAST(transition_lease.stage AS BLOB) IS CAST(:judged_stage AS BLOB)
  AND CAST(transition_lease.acquired_at AS BLOB) IS CAST(:judged_acquired_at AS BLOB);

-- name: get
SELECT task_id, CAST(owner AS BLOB) AS owner, CAST(owner_pid AS BLOB) AS owner_pid,
       CAST(owner_boot_id AS BLOB) AS owner_boot_id, CAST(run_id AS BLOB) AS run_id,
       CAST(transition_lease.stage AS BLOB) AS stage, CAST(acquired_at AS BLOB) AS acquired_at,
       tasks.work_item, tasks.repo
FROM transition_lease LEFT JOIN tasks ON tasks.id = task_id WHERE task_id = :task_id;

-- name: all
SELECT task_id, CAST(owner AS BLOB) AS owner, CAST(owner_pid AS BLOB) AS owner_pid,
       CAST(owner_boot_id AS BLOB) AS owner_boot_id, CAST(run_id AS BLOB) AS run_id,
       CAST(transition_lease.stage AS BLOB) AS stage, CAST(acquired_at AS BLOB) AS acquired_at,
       tasks.work_item, tasks.repo
FROM transition_lease LEFT JOIN tasks ON tasks.id = task_id ORDER BY task_id LIMIT 1000;

-- name: release
DELETE FROM transition_lease WHERE task_id = :task_id AND owner_boot_id = :boot_id
  AND EXISTS (SELECT 1 FROM transition_epoch WHERE task_id = :task_id AND epoch = :epoch);

-- name: remove
DELETE FROM transition_lease WHERE task_id = :task_id AND CAST(owner AS BLOB) IS CAST(:owner AS BLOB)
  AND CAST(owner_pid AS BLOB) IS CAST(:pid AS BLOB) AND CAST(owner_boot_id AS BLOB) IS CAST(:boot_id AS BLOB)
  AND CAST(run_id AS BLOB) IS CAST(:run_id AS BLOB)
  AND CAST(stage AS BLOB) IS CAST(:stage AS BLOB) AND CAST(acquired_at AS BLOB) IS CAST(:acquired_at AS BLOB);

-- name: epoch
SELECT epoch FROM transition_epoch WHERE task_id = :task_id /* postgres: FOR UPDATE */;

-- name: raise_epoch
UPDATE transition_epoch SET epoch = epoch + 1 WHERE task_id = :task_id AND epoch = :epoch;

-- name: fallen_behind
SELECT id, epoch, in_ledger, in_story FROM
    (SELECT tasks.id, transition_epoch.epoch,
            (SELECT max(effects.epoch) FROM effects WHERE effects.task_id = tasks.id) AS in_ledger,
            (SELECT events.epoch FROM events WHERE events.task_id = tasks.id AND events.epoch IS NOT NULL
             ORDER BY events.id DESC LIMIT 1) AS in_story
     FROM tasks JOIN transition_epoch ON transition_epoch.task_id = tasks.id
     WHERE tasks.stage NOT IN ('done', 'cancelled')) AS open
WHERE in_ledger > epoch OR in_story > epoch ORDER BY id LIMIT 100;

-- name: beyond
SELECT tasks.id, transition_epoch.epoch,
       coalesce((SELECT events.epoch FROM events WHERE events.task_id = tasks.id AND events.epoch < :believable
                 ORDER BY events.id DESC LIMIT 1), 0) AS seen
FROM tasks JOIN transition_epoch ON transition_epoch.task_id = tasks.id
WHERE tasks.stage NOT IN ('done', 'cancelled') AND transition_epoch.epoch >= :believable ORDER BY tasks.id LIMIT 100;

-- name: lift_epoch
UPDATE transition_epoch SET epoch = :epoch WHERE task_id = :task_id AND epoch = :seen;

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
