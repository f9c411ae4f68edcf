-- name: enqueue
INSERT INTO jobs (task_id, stage, round, kind, max_attempts, priority, subject, brief, undo, not_before, created_at, lane)
SELECT tasks.id, :stage, :round, :kind, :max_attempts, tasks.priority, :subject, :brief, :undo, :not_before, utc_now(),
       lanes.id
FROM tasks LEFT JOIN lanes ON lanes.repo = tasks.repo AND lanes.stage = :stage AND lanes.agent = :agent
                          AND lanes.priority = tasks.priority
WHERE tasks.id = :task_id
RETURNING id, lane;

-- name: claim_next_job
UPDATE jobs SET status = 'running', claimed_by = :boot_id, claimed_at = utc_now(), finished_at = NULL,
                attempts = attempts + 1, claims = claims + 1, error = NULL
WHERE status = 'queued' AND id = (
    WITH RECURSIVE waiting (lane) AS ( -- the lanes in which something waits: one step through jobs_waiting for each
        SELECT min(lane) FROM jobs WHERE status = 'queued'
        UNION ALL
        SELECT (SELECT min(lane) FROM jobs WHERE status = 'queued' AND jobs.lane > waiting.lane)
        FROM waiting WHERE waiting.lane IS NOT NULL
    ), running (repo, stage, agent, many) AS (
        SELECT lanes.repo, lanes.stage, lanes.agent, count(*) FROM jobs JOIN lanes ON lanes.id = jobs.lane
        WHERE jobs.status = 'running' GROUP BY lanes.repo, lanes.stage, lanes.agent
    ), used_up (share) AS MATERIALIZED ( -- an agent counts for all of its shares
        SELECT limits.key FROM json_each(:limits /* postgres: ::json */) AS limits
        WHERE CAST(CAST(limits.value AS TEXT) AS INTEGER) <=
              (SELECT coalesce(sum(many), 0) FROM running
               WHERE agent <> '' AND limits.key IN ('all', 'repo/' || repo, 'stage/' || stage, 'agent/' || agent))
    ), firsts (lane, id, place) AS ( -- of each lane with room its first job that may start; on PostgreSQL more of few
        SELECT lanes.id, CAST(0 AS BIGINT), 0 -- lanes: who claims at the same time holds the first ones
        FROM waiting JOIN lanes ON lanes.id = waiting.lane
        WHERE CASE WHEN lanes.agent = '' THEN :checks_allowed ELSE :agents_allowed AND NOT EXISTS
                  (SELECT 1 FROM used_up WHERE used_up.share IN
                      ('all', 'repo/' || lanes.repo, 'stage/' || lanes.stage, 'agent/' || lanes.agent)) END
          AND (CAST(:repos AS TEXT) IS NULL OR lanes.repo IN (SELECT value FROM json_each(:repos)))
        UNION ALL
        SELECT firsts.lane, (
            SELECT id FROM jobs
            WHERE status = 'queued' AND lane = firsts.lane AND jobs.id > firsts.id
              AND (not_before IS NULL OR not_before <= utc_now())
              AND (undo IS NOT NULL -- a look after an undo only asks; what else is held starts nothing,
                   OR (SELECT hold IS NOT NULL FROM tasks WHERE tasks.id = jobs.task_id) IS NOT TRUE)
              AND (SELECT work_home <> :home FROM tasks WHERE tasks.id = jobs.task_id) IS NOT TRUE
              AND (SELECT epoch >= :believable FROM transition_epoch -- nor does what could not go on from there
                   WHERE transition_epoch.task_id = jobs.task_id) IS NOT TRUE
            ORDER BY jobs.id LIMIT 1), firsts.place + 1
        FROM firsts WHERE firsts.id IS NOT NULL AND firsts.place < 1 /* postgres: + 16 / (SELECT count(lane) FROM waiting) */
    ), at_work (repo, checks, many) AS (
        SELECT repo, agent = '', sum(many) FROM running GROUP BY repo, agent = ''
    ), served (repo, checks, last) AS (
        SELECT repo, agent = '', max(served_at) FROM lanes GROUP BY repo, agent = ''
    ), candidates (id, repo, checks, level, since) AS ( -- the lane's waiting counts, not what its jobs waited behind it
        SELECT jobs.id, lanes.repo, lanes.agent = '',
               lanes.priority + periods_since(CASE WHEN lanes.served_at > coalesce(jobs.not_before, jobs.created_at)
                   THEN lanes.served_at ELSE coalesce(jobs.not_before, jobs.created_at) END, :step_s),
               coalesce(jobs.not_before, jobs.created_at)
        FROM firsts JOIN jobs ON jobs.id = firsts.id JOIN lanes ON lanes.id = firsts.lane
        WHERE firsts.place > 0
    ), ranked (id, level, busy, last, since) AS ( -- busy: what its repository would have at work with it
        SELECT candidates.id, level, coalesce(at_work.many, 0)
                   + row_number() OVER (PARTITION BY candidates.repo, candidates.checks ORDER BY level DESC, since, candidates.id),
               coalesce(served.last, ''), since
        FROM candidates
        LEFT JOIN at_work ON at_work.repo = candidates.repo AND at_work.checks = candidates.checks
        LEFT JOIN served ON served.repo = candidates.repo AND served.checks = candidates.checks
    )
    SELECT jobs.id FROM ranked JOIN jobs ON jobs.id = ranked.id WHERE jobs.status = 'queued'
    ORDER BY ranked.level DESC, ranked.busy, ranked.last, ranked.since, jobs.id
    LIMIT 1 /* postgres: FOR UPDATE OF jobs SKIP LOCKED */)
RETURNING *;

-- name: finish
UPDATE jobs SET status = :status, claimed_by = NULL, finished_at = utc_now(), error = :error
WHERE id = :job_id AND status = 'running' AND claimed_by = :boot_id AND claims = :claims;

-- name: requeue
UPDATE jobs SET status = 'queued', claimed_by = NULL, claimed_at = NULL, error = :error, brief = :brief,
                not_before = utc_after(:delay_s), attempts = attempts - :free_attempts
WHERE id = :job_id AND status = 'running' AND claimed_by = :boot_id AND claims = :claims;

-- name: reap_running_job
UPDATE jobs SET status = CASE WHEN attempts - :free_attempts >= max_attempts THEN 'failed' ELSE 'queued' END,
                claimed_by = NULL, claimed_at = NULL, error = :error, attempts = attempts - :free_attempts,
                finished_at = CASE WHEN attempts - :free_attempts >= max_attempts THEN utc_now() ELSE NULL END
WHERE id = :job_id AND status = 'running' AND claimed_by = :claimed_by AND claims = :claims
RETURNING status;

-- name: requeue_running_checks
UPDATE jobs SET status = CASE WHEN attempts >= max_attempts THEN 'failed' ELSE 'queued' END,
                claimed_by = NULL, claimed_at = NULL, error = :error,
                finished_at = CASE WHEN attempts >= max_attempts THEN utc_now() ELSE NULL END
WHERE status = 'running' AND claimed_by = :owner AND kind IN ('ci', 'candidate-ci')
RETURNING id, task_id, kind, status, attempts;

-- name: requeue_running_looks
UPDATE jobs SET status = 'queued', claimed_by = NULL, claimed_at = NULL, error = :error, attempts = attempts - 1
WHERE status = 'running' AND claimed_by = :owner AND kind IN ('staging-health', 'production-health')
RETURNING id, task_id, kind, status, attempts;

-- name: adopt_all
-- A job that its owner has given back and claimed once more since it was read is another claim's.
UPDATE jobs SET claimed_by = :boot_id
WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:jobs)) AND status = 'running' AND claimed_by = :claimed_by
  AND id || ':' || claims IN (SELECT value FROM json_each(:claims))
RETURNING id;

-- name: cancel_active
UPDATE jobs SET status = 'cancelled', claimed_by = NULL, finished_at = utc_now(), error = :reason
WHERE task_id = :task_id AND status IN ('queued', 'running')
RETURNING id;

-- name: get
SELECT * FROM jobs WHERE id = :job_id;

-- name: claim_of
SELECT claimed_by, claims FROM jobs WHERE id = :job_id /* postgres: FOR UPDATE */;

-- name: of_step
SELECT * FROM jobs WHERE task_id = :task_id AND stage = :stage AND round = :round AND kind = :kind
ORDER BY id DESC LIMIT 1;

-- name: active_of_task
SELECT * FROM jobs WHERE task_id = :task_id AND status IN ('queued', 'running');

-- name: at_work_for
SELECT DISTINCT jobs.task_id FROM json_each(:tasks) AS wanted CROSS JOIN jobs
WHERE jobs.task_id = CAST(wanted.value AS BIGINT) AND jobs.status IN ('queued', 'running');

-- name: running
SELECT * FROM jobs WHERE status = 'running' ORDER BY id LIMIT 1000;

-- name: running_page
SELECT * FROM jobs WHERE status = 'running' AND id > :after ORDER BY id LIMIT :limit;

-- name: running_of_others
SELECT * FROM jobs WHERE status = 'running' AND claimed_by <> :boot_id AND id > :after ORDER BY id LIMIT :limit;

-- name: others_at_work
SELECT DISTINCT claimed_by FROM jobs WHERE status = 'running' AND claimed_by <> :boot_id;

-- name: queued
SELECT * FROM jobs WHERE status = 'queued' ORDER BY priority DESC, id LIMIT 1000;

-- name: of_task
SELECT * FROM jobs WHERE task_id = :task_id ORDER BY id DESC LIMIT :limit;

-- name: add_run
INSERT INTO agent_runs (job_id, task_id, attempt, agent, model, run_dir, home, started_at)
VALUES (:job_id, :task_id, :attempt, :agent, :model, :run_dir, :home, utc_now()) RETURNING id;

-- name: finish_run
UPDATE agent_runs SET outcome = :outcome, exit_code = :exit_code, model = coalesce(:model, model),
    input_tokens = :input_tokens, output_tokens = :output_tokens, cache_read_tokens = :cache_read_tokens,
    cache_write_tokens = :cache_write_tokens, cost_usd = :cost_usd, summary = :summary, session_id = :session_id,
    finished_at = utc_now()
WHERE id = :run_id AND (outcome IS NULL OR outcome = 'lost');

-- name: open_runs_of_jobs
SELECT agent_runs.* FROM json_each(:jobs) AS wanted CROSS JOIN agent_runs
WHERE agent_runs.job_id = CAST(wanted.value AS BIGINT) AND agent_runs.outcome IS NULL ORDER BY agent_runs.id;

-- name: untidied_at
SELECT DISTINCT task_id FROM agent_runs JOIN tasks ON tasks.id = task_id
WHERE home = :home AND home <> '' AND agent_runs.tidied_at IS NULL AND stage IN ('done', 'cancelled')
ORDER BY task_id LIMIT :limit;

-- name: tidied_at
UPDATE agent_runs SET tidied_at = utc_now() WHERE task_id = :task_id AND home = :home AND tidied_at IS NULL;

-- name: runs_of_task
SELECT agent_runs.*, jobs.kind, jobs.stage, jobs.round FROM agent_runs JOIN jobs ON jobs.id = job_id
WHERE agent_runs.task_id = :task_id ORDER BY agent_runs.id;

-- name: spent
SELECT coalesce(sum(cost_usd), 0.0) AS cost_usd,
       coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0) AS tokens,
       count(*) AS runs
FROM agent_runs WHERE task_id = :task_id;
