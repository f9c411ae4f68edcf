-- What is still open, and what came last, is found without going through what has ended, however much that is.

CREATE INDEX IF NOT EXISTS tasks_open_in_order ON tasks (id) WHERE stage NOT IN ('done', 'cancelled');

DROP INDEX IF EXISTS tasks_away;
CREATE INDEX tasks_away ON tasks (work_home) WHERE work_home IS NOT NULL AND stage NOT IN ('done', 'cancelled');

DROP INDEX IF EXISTS jobs_running;
CREATE INDEX jobs_running ON jobs (id) WHERE status = 'running';

CREATE INDEX IF NOT EXISTS effects_merges
    ON effects (CAST(json_extract(evidence, '$.repo') AS TEXT),
                CAST(json_extract(evidence, '$.candidate.sequence') AS BIGINT))
    WHERE name = 'merge_pr' AND state = 'applied';

CREATE INDEX IF NOT EXISTS effects_starts ON effects (json_extract(evidence, '$.environment'), state, sequence)
    WHERE name IN ('deploy_init', 'deploy_undo');

CREATE INDEX IF NOT EXISTS effects_starts_of_version
    ON effects (json_extract(evidence, '$.sha'), json_extract(evidence, '$.environment'))
    WHERE name IN ('deploy_init', 'deploy_undo');

CREATE INDEX IF NOT EXISTS effects_self_starts ON effects (json_extract(evidence, '$.environment'), sequence)
    WHERE name = 'deploy_init' AND json_extract(evidence, '$.conditional_undo') IS NOT NULL;

CREATE INDEX IF NOT EXISTS own_commits_of_task ON own_commits (task_id);
