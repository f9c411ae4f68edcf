-- name: store
INSERT INTO inbox (source, dedup_key, kind, task_id, stage, round, subject, payload, received_at)
SELECT :source, :dedup_key, :kind, CAST(:task_id AS BIGINT), :stage, CAST(:round AS BIGINT), :subject, :payload, utc_now()
WHERE NOT EXISTS (SELECT 1 FROM deliveries WHERE source = :source AND delivery_id = :delivery_id)
ON CONFLICT (dedup_key) DO NOTHING RETURNING id;

-- name: store_delivery
INSERT INTO deliveries (inbox_id, source, delivery_id) VALUES (:inbox_id, :source, :delivery_id);

-- name: stored_as
SELECT id, task_id FROM inbox WHERE dedup_key = :dedup_key
UNION ALL
SELECT id, task_id FROM inbox JOIN deliveries ON inbox_id = id
WHERE deliveries.source = :source AND delivery_id = :delivery_id
LIMIT 1;

-- name: newest
SELECT max(id) AS id FROM inbox;

-- name: has_come
SELECT 1 FROM inbox WHERE source = :source AND id > :after AND payload LIKE '%' || :words || '%' LIMIT 1;

-- name: open_page
SELECT id, task_id, deferrals, not_before IS NULL OR not_before <= utc_now() AS due
FROM inbox JOIN deliveries ON inbox_id = id
WHERE handled_at IS NULL AND parked_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: open_delivery
SELECT inbox.*, attempts FROM inbox JOIN deliveries ON inbox_id = id
WHERE id = :inbox_id AND handled_at IS NULL AND parked_at IS NULL;

-- name: still_open
SELECT task_id, stage, round, subject, attempts FROM inbox JOIN deliveries ON inbox_id = id
WHERE id = :inbox_id AND handled_at IS NULL AND parked_at IS NULL
/* postgres: FOR NO KEY UPDATE OF inbox */;

-- name: bind
UPDATE inbox SET task_id = :task_id, stage = :stage, round = :round, subject = :subject
WHERE id = :inbox_id AND task_id IS NULL;

-- name: defer
UPDATE deliveries SET deferrals = deferrals + 1, not_before = utc_after(:delay_s) WHERE inbox_id = :inbox_id;

-- name: failed
UPDATE deliveries SET attempts = attempts + 1, error = :error, not_before = utc_after(:delay_s),
                      parked_at = CASE WHEN attempts + 1 >= :max_attempts THEN utc_now() ELSE NULL END
WHERE inbox_id = :inbox_id RETURNING parked_at;

-- name: hasten
UPDATE deliveries SET not_before = NULL
WHERE not_before IS NOT NULL AND parked_at IS NULL AND inbox_id IN
    (SELECT id FROM inbox WHERE handled_at IS NULL AND received_at <= utc_after(-:older_s));

-- name: overdue
SELECT count(*) AS overdue FROM inbox JOIN deliveries ON inbox_id = id
WHERE handled_at IS NULL AND parked_at IS NULL AND received_at <= utc_after(-:older_s);

-- name: counts
SELECT count(*) AS open,
       count(CASE WHEN parked_at IS NULL AND not_before > utc_now() THEN 1 END) AS deferred,
       count(parked_at) AS parked,
       min(CASE WHEN parked_at IS NULL THEN received_at END) AS oldest
FROM inbox JOIN deliveries ON inbox_id = id WHERE handled_at IS NULL;

-- name: unpark
UPDATE deliveries SET parked_at = NULL, not_before = NULL
WHERE parked_at IS NOT NULL AND (CAST(:inbox_id AS BIGINT) IS NULL OR inbox_id = :inbox_id);

-- name: moves_since
SELECT json_extract(payload, '$.activity.new_value') AS value, json_extract(payload, '$.activity.actor.id') AS actor
FROM inbox JOIN deliveries ON inbox_id = id
WHERE task_id = :task_id AND inbox.source = :source AND kind = :kind AND id <> :inbox_id
  AND json_extract(payload, '$.activity.field') IN ('state', 'state_id')
  AND json_extract(payload, '$.data.updated_at') > :said_at;
