-- name: add
INSERT INTO lanes (repo, stage, agent, priority)
SELECT repo, :stage, :agent, priority FROM tasks WHERE tasks.id = :task_id
ON CONFLICT DO NOTHING;

-- name: enter
UPDATE jobs SET lane = (
    SELECT lanes.id FROM lanes JOIN tasks ON tasks.id = :task_id AND tasks.repo = lanes.repo
    WHERE lanes.stage = jobs.stage AND lanes.agent = :agent AND lanes.priority = jobs.priority)
WHERE id = :job_id AND status = 'queued';

-- name: strays
SELECT id, task_id, stage, kind FROM jobs WHERE status = 'queued' AND lane IS NULL ORDER BY id LIMIT 100;

-- name: served
-- Who claims from it at the same time says the same: nobody waits for the other.
UPDATE lanes SET served_at = utc_now()
WHERE id = (SELECT id FROM lanes WHERE id = :lane /* postgres: FOR NO KEY UPDATE SKIP LOCKED */);

-- name: one_claim_at_a_time
SELECT 1; -- SQLite has one writer: there is nothing to lock

-- name: running
SELECT lanes.repo, lanes.stage, lanes.agent, count(*) AS jobs FROM jobs JOIN lanes ON lanes.id = jobs.lane
WHERE jobs.status = 'running' GROUP BY lanes.repo, lanes.stage, lanes.agent;

-- name: waiting
SELECT * FROM lanes WHERE id IN (SELECT lane FROM jobs WHERE status = 'queued') ORDER BY id;
