-- Jobs that take turns together: those of one repository, stage, agent and priority. A claim looks at the first of each
-- lane in which something waits, so that it costs the same however long the lanes are.

CREATE TABLE IF NOT EXISTS lanes (
    id        INTEGER PRIMARY KEY,
    repo      TEXT NOT NULL REFERENCES repositories (name),
    stage     TEXT NOT NULL,
    agent     TEXT NOT NULL,  -- which program an agent's job will start; '' for the orchestrator's own checks
    priority  INTEGER NOT NULL,
    served_at TEXT,           -- when a job was last claimed from it
    UNIQUE (repo, stage, agent, priority)
);

ALTER TABLE jobs ADD COLUMN lane INTEGER REFERENCES lanes (id);
CREATE INDEX IF NOT EXISTS jobs_waiting ON jobs (lane, id) WHERE status = 'queued';

-- What waits or runs already: an agent is known where it ran before.
INSERT INTO lanes (repo, stage, agent, priority)
SELECT DISTINCT tasks.repo, jobs.stage,
       CASE WHEN kind IN ('ci', 'candidate-ci', 'staging-health', 'production-health') THEN ''
            ELSE coalesce((SELECT agent_runs.agent FROM agent_runs WHERE job_id = jobs.id ORDER BY agent_runs.id DESC LIMIT 1),
                          'unknown') END,
       jobs.priority
FROM jobs JOIN tasks ON tasks.id = jobs.task_id WHERE jobs.status IN ('queued', 'running')
ON CONFLICT DO NOTHING;
UPDATE jobs SET lane =
    (SELECT lanes.id FROM lanes JOIN tasks ON tasks.id = jobs.task_id AND tasks.repo = lanes.repo
     WHERE lanes.stage = jobs.stage AND lanes.priority = jobs.priority AND lanes.agent =
       CASE WHEN kind IN ('ci', 'candidate-ci', 'staging-health', 'production-health') THEN ''
            ELSE coalesce((SELECT agent_runs.agent FROM agent_runs WHERE job_id = jobs.id ORDER BY agent_runs.id DESC LIMIT 1),
                          'unknown') END)
WHERE status IN ('queued', 'running') AND lane IS NULL;
