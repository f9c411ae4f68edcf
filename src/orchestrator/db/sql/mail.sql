-- name: receive
INSERT INTO inbox (source, dedup_key, kind, task_id, stage, round, subject, person, payload, received_at)
VALUES (:source, :dedup_key, :kind, :task_id, :stage, :round, :subject, :person, :payload, utc_now())
ON CONFLICT (dedup_key) DO NOTHING RETURNING id;

-- name: waiting_signals
SELECT * FROM inbox WHERE task_id = :task_id AND handled_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries WHERE inbox_id = inbox.id) ORDER BY id LIMIT 100;

-- name: tasks_with_signals
SELECT DISTINCT task_id FROM inbox WHERE handled_at IS NULL AND task_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries WHERE inbox_id = inbox.id) ORDER BY task_id LIMIT 1000;

-- name: handled
UPDATE inbox SET handled_at = utc_now(), outcome = :outcome WHERE id = :inbox_id AND handled_at IS NULL;

-- name: signal
SELECT * FROM inbox WHERE id = :inbox_id;

-- name: approve
INSERT INTO approvals (task_id, kind, stage, round, subject, person, at)
VALUES (:task_id, :kind, :stage, :round, :subject, :person, utc_now()) ON CONFLICT DO NOTHING;

-- name: approval
SELECT * FROM approvals
WHERE task_id = :task_id AND kind = :kind AND stage = :stage AND round = :round AND subject = :subject LIMIT 1;

-- name: send
INSERT INTO outbox (stable_id, task_id, kind, payload, created_at, tracker)
VALUES (CAST(:stable_id AS TEXT) || coalesce((SELECT '@' || accepted FROM installation WHERE one = 1), ''),
        :task_id, :kind, :payload, utc_now(),
        (SELECT tasks.tracker FROM tasks JOIN tracker_projects ON tracker_projects.repo = tasks.repo
         WHERE tasks.id = :task_id AND tasks.tracker = tracker_projects.tracker AND external_id IS NOT NULL
           AND :kind <> 'alert'))
ON CONFLICT (stable_id) DO NOTHING;

-- name: copy_to_channels
INSERT INTO outbox (stable_id, kind, payload, created_at, channel)
SELECT stable_id || '#' || name, kind, payload, created_at, name FROM outbox, alert_channels
WHERE stable_id = CAST(:stable_id AS TEXT) || coalesce((SELECT '@' || accepted FROM installation WHERE one = 1), '');

-- name: add_channel
INSERT INTO alert_channels (name) VALUES (:name) ON CONFLICT DO NOTHING;

-- name: channels
SELECT name FROM alert_channels ORDER BY name LIMIT 100;

-- name: remove_channel
DELETE FROM alert_channels WHERE name = :name;

-- name: known
SELECT 1 FROM outbox
WHERE stable_id = CAST(:stable_id AS TEXT) || coalesce((SELECT '@' || accepted FROM installation WHERE one = 1), '');

-- name: due
SELECT * FROM outbox AS due
WHERE sent_at IS NULL AND parked_at IS NULL AND channel IS :channel AND tracker IS :tracker
  AND (not_before IS NULL OR not_before <= utc_now())
  AND NOT EXISTS (SELECT 1 FROM outbox AS earlier WHERE earlier.task_id = due.task_id AND earlier.id < due.id
                  AND earlier.tracker IS due.tracker AND earlier.sent_at IS NULL AND earlier.parked_at IS NULL)
ORDER BY id LIMIT :limit;

-- name: claim
UPDATE outbox SET not_before = utc_after(:for_s)
WHERE id = :outbox_id AND sent_at IS NULL AND parked_at IS NULL AND (not_before IS NULL OR not_before <= utc_now());

-- name: put_off
UPDATE outbox SET not_before = utc_after(:delay_s) WHERE id = :outbox_id AND sent_at IS NULL AND parked_at IS NULL;

-- name: sent
UPDATE outbox SET sent_at = utc_now(), error = NULL WHERE id = :outbox_id AND sent_at IS NULL;

-- name: lying
SELECT (SELECT count(*) FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL) AS waiting,
       (SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL) AS parked,
       (SELECT min(created_at) FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL) AS oldest;

-- name: failed
UPDATE outbox SET attempts = attempts + 1, error = :error, not_before = utc_after(:delay_s),
                  parked_at = CASE WHEN attempts + 1 >= :max_attempts THEN utc_now() ELSE NULL END
WHERE id = :outbox_id AND sent_at IS NULL AND parked_at IS NULL
RETURNING parked_at, (SELECT work_item FROM tasks WHERE tasks.id = outbox.task_id) AS work_item;
