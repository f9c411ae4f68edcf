-- name: enqueue
INSERT INTO jobs (task_id, stage, round, kind, max_attempts, priority, subject, brief, undo, not_before, created_at)
VALUES (:task_id, :stage, :round, :kind, :max_attempts,
        (SELECT priority FROM tasks WHERE id = :task_id), :subject, :brief, :undo, :not_before, utc_now())
RETURNING id;

-- name: claim_next_job
UPDATE jobs SET status = 'running', claimed_by = :boot_id, claimed_at = utc_now(), finished_at = NULL,
                attempts = attempts + 1, claims = claims + 1, error = NULL
WHERE status = 'queued' AND id = (
    SELECT id FROM jobs
    WHERE status = 'queued' AND (not_before IS NULL OR not_before <= utc_now())
      AND (:agents_allowed OR kind IN ('ci', 'candidate-ci', 'staging-health', 'production-health'))
      AND (:checks_allowed OR kind NOT IN ('ci', 'candidate-ci', 'staging-health', 'production-health'))
      AND ((SELECT hold FROM tasks WHERE tasks.id = jobs.task_id) IS NULL -- what is held starts nothing;
           OR undo IS NOT NULL) -- a look after an undo only asks
      AND NOT EXISTS (SELECT 1 FROM transition_epoch -- nor does what could not go on from there
                      WHERE transition_epoch.task_id = jobs.task_id AND transition_epoch.epoch >= :believable)
      AND (CAST(:repos AS TEXT) IS NULL OR (SELECT repo FROM tasks WHERE tasks.id = jobs.task_id)
                                           IN (SELECT value FROM json_each(:repos)))
    ORDER BY priority DESC, id LIMIT 1 /* postgres: FOR UPDATE SKIP LOCKED */)
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
RETURNING id, task_id, status, attempts;

-- name: requeue_running_looks
UPDATE jobs SET status = 'queued', claimed_by = NULL, claimed_at = NULL, error = :error, attempts = attempts - 1
WHERE status = 'running' AND claimed_by = :owner AND kind IN ('staging-health', 'production-health')
RETURNING id, task_id, status, attempts;

-- name: adopt
UPDATE jobs SET claimed_by = :boot_id
WHERE id = :job_id AND status = 'running' AND claimed_by = :claimed_by AND claims = :claims;

-- name: cancel_active
UPDATE jobs SET status = 'cancelled', claimed_by = NULL, finished_at = utc_now(), error = :reason
WHERE task_id = :task_id AND status IN ('queued', 'running')
RETURNING id;

-- name: get
SELECT * FROM jobs WHERE id = :job_id;

-- name: of_step
SELECT * FROM jobs WHERE task_id = :task_id AND stage = :stage AND round = :round AND kind = :kind
ORDER BY id DESC LIMIT 1;

-- name: active_of_task
SELECT * FROM jobs WHERE task_id = :task_id AND status IN ('queued', 'running');

-- name: running
SELECT * FROM jobs WHERE status = 'running' ORDER BY id LIMIT 1000;

-- name: running_of_others
SELECT * FROM jobs WHERE status = 'running' AND claimed_by <> :boot_id ORDER BY id LIMIT 1000;

-- name: queued
SELECT * FROM jobs WHERE status = 'queued' ORDER BY priority DESC, id LIMIT 1000;

-- name: of_task
SELECT * FROM jobs WHERE task_id = :task_id ORDER BY id DESC LIMIT :limit;

-- name: add_run
INSERT INTO agent_runs (job_id, task_id, attempt, agent, model, run_dir, started_at)
VALUES (:job_id, :task_id, :attempt, :agent, :model, :run_dir, utc_now()) RETURNING id;

-- name: finish_run
UPDATE agent_runs SET outcome = :outcome, exit_code = :exit_code, model = coalesce(:model, model),
    input_tokens = :input_tokens, output_tokens = :output_tokens, cache_read_tokens = :cache_read_tokens,
    cache_write_tokens = :cache_write_tokens, cost_usd = :cost_usd, summary = :summary, session_id = :session_id,
    finished_at = utc_now()
WHERE id = :run_id AND outcome IS NULL;

-- name: open_run_of_job
SELECT * FROM agent_runs WHERE job_id = :job_id AND outcome IS NULL ORDER BY id DESC LIMIT 1;

-- name: runs_of_task
SELECT agent_runs.*, jobs.kind, jobs.stage, jobs.round FROM agent_runs JOIN jobs ON jobs.id = job_id
WHERE agent_runs.task_id = :task_id ORDER BY agent_runs.id;

-- name: spent
SELECT coalesce(sum(cost_usd), 0.0) AS cost_usd,
       coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0) AS tokens,
       count(*) AS runs
FROM agent_runs WHERE task_id = :task_id;
