-- name: add
INSERT INTO tasks (work_item, repo, tracker, external_id, title, body, labels, stage, priority, created_at, updated_at)
VALUES (:work_item, :repo, :tracker, :external_id, :title, :body, :labels, 'created', :priority, utc_now(), utc_now())
ON CONFLICT (tracker, external_id) WHERE external_id IS NOT NULL AND stage NOT IN ('done', 'cancelled') DO NOTHING
RETURNING id;

-- name: add_epoch
INSERT INTO transition_epoch (task_id, epoch) VALUES (:task_id, 0);

-- name: add_dependency
INSERT INTO job_deps (task_id, depends_on) SELECT :task_id, id FROM tasks WHERE work_item = :depends_on;

-- name: get
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id WHERE id = :task_id;

-- name: get_by_work_item
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id WHERE work_item = :work_item;

-- name: get_open_by_ticket
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE tracker = :tracker AND external_id = :external_id AND stage NOT IN ('done', 'cancelled');

-- name: newest_by_ticket
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE tracker = :tracker AND external_id IS NOT NULL AND external_id = :external_id ORDER BY id DESC LIMIT 1;

-- name: newest_by_branch
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE repo = :repo AND branch IS NOT NULL AND branch = :branch ORDER BY id DESC LIMIT 1;

-- name: newest_by_pull_request
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE repo = :repo AND pr_number IS NOT NULL AND pr_number = :pr_number ORDER BY id DESC LIMIT 1;

-- name: open_at_commit
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE repo = :repo AND stage NOT IN ('done', 'cancelled') AND (head_sha = :sha OR gated_sha = :sha OR EXISTS
    (SELECT 1 FROM candidates WHERE candidates.task_id = tasks.id AND candidates.round = tasks.round
     AND candidates.sha = :sha)) ORDER BY id DESC LIMIT 1;

-- name: before_the_merge
SELECT id FROM tasks WHERE repo = :repo AND stage NOT IN ('done', 'cancelled') AND stage IN ('created', 'testing', 'deploy-staging')
ORDER BY id LIMIT :limit;

-- name: open_ids
SELECT id FROM tasks WHERE stage NOT IN ('done', 'cancelled') AND (CAST(:repo AS TEXT) IS NULL OR repo = :repo)
ORDER BY id;

-- name: list_open
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE stage NOT IN ('done', 'cancelled') AND id > :after ORDER BY id LIMIT :limit;

-- name: list_recent
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: waiting_for_dependencies
SELECT dep.work_item, dep.stage FROM job_deps JOIN tasks AS dep ON dep.id = job_deps.depends_on
WHERE job_deps.task_id = :task_id AND dep.stage <> 'done' ORDER BY dep.id;

-- name: dependents
SELECT task_id FROM job_deps WHERE depends_on = :task_id ORDER BY task_id;

-- name: oldest_waiting_for_slot
SELECT id FROM tasks WHERE repo = :repo AND stage NOT IN ('done', 'cancelled') AND (hold = 'slot' OR (
    hold = 'frozen' AND stage = 'testing' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo_freeze.repo = tasks.repo)))
ORDER BY hold_since, id LIMIT 1; -- a freeze that has been lifted took nobody out of the line

-- name: first_in_line
WITH line AS (SELECT id, repo, hold_since FROM tasks WHERE stage NOT IN ('done', 'cancelled') AND (hold = 'slot' OR (
    hold = 'frozen' AND stage = 'testing' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo_freeze.repo = tasks.repo))))
SELECT id FROM line WHERE NOT EXISTS
    (SELECT 1 FROM line AS before WHERE before.repo = line.repo
     AND (before.hold_since < line.hold_since OR (before.hold_since = line.hold_since AND before.id < line.id)))
ORDER BY hold_since, id LIMIT 100;

-- name: between_starts
SELECT id FROM tasks WHERE stage NOT IN ('done', 'cancelled') AND stage IN ('deploy-staging', 'deploy') AND hold IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.task_id = tasks.id AND jobs.status IN ('queued', 'running'))
  AND NOT EXISTS (SELECT 1 FROM effects WHERE effects.task_id = tasks.id
                  AND effects.state IN ('intended', 'revoking', 'in_doubt'))
ORDER BY id LIMIT 100;

-- name: held_up
SELECT id FROM tasks WHERE repo = :repo AND hold IN ('frozen', 'slot') AND stage NOT IN ('done', 'cancelled')
ORDER BY hold_since, id LIMIT 1000;

-- name: broken
SELECT id FROM tasks WHERE repo = :repo AND stage NOT IN ('done', 'cancelled') AND stage = 'deploy' AND hold = 'escalated'
ORDER BY id LIMIT 1000;

-- name: broken_beside
SELECT tasks.*, transition_epoch.epoch FROM tasks JOIN transition_epoch ON task_id = id
WHERE repo = :repo AND stage NOT IN ('done', 'cancelled') AND stage = 'deploy' AND id <> :task_id AND (hold = 'escalated' OR EXISTS
    (SELECT 1 FROM effects WHERE effects.task_id = tasks.id AND effects.name = 'deploy_undo'
     AND effects.state IN ('intended', 'revoking', 'in_doubt')))
ORDER BY id DESC LIMIT 1;

-- name: waiting_for_slot
SELECT id FROM tasks WHERE hold = 'slot' AND stage NOT IN ('done', 'cancelled') ORDER BY hold_since, id LIMIT 100;

-- name: update_stage_cas
UPDATE tasks SET stage = :new_stage,
                 round = 1 + (SELECT coalesce(sum(taken), 0) FROM task_edges WHERE task_id = :task_id AND to_stage = :new_stage),
                 hold = NULL, hold_reason = NULL, hold_since = NULL, hold_cause = NULL,
                 cancelled_at = CASE WHEN :new_stage = 'cancelled' THEN utc_now() ELSE cancelled_at END,
                 updated_at = utc_now()
WHERE id = :task_id AND stage = :expected_stage
  AND (SELECT epoch FROM transition_epoch WHERE task_id = :task_id) = :epoch;

-- name: update_stage
UPDATE tasks SET stage = :new_stage, updated_at = utc_now() WHERE id = :task_id;

-- name: set_hold
UPDATE tasks SET hold = :hold, hold_reason = :reason, hold_cause = :cause, updated_at = utc_now(),
                 hold_since = CASE WHEN hold IS :hold OR ('testing' = stage AND hold IN ('slot', 'frozen') AND :hold IN ('slot', 'frozen'))
                              THEN hold_since ELSE utc_now() END -- another reason, the same wait
WHERE id = :task_id AND (hold IS NOT :hold OR hold_reason IS NOT :reason OR hold_cause IS NOT :cause);

-- name: clear_hold
UPDATE tasks SET hold = NULL, hold_reason = NULL, hold_since = NULL, hold_cause = NULL, updated_at = utc_now()
WHERE id = :task_id AND hold IS NOT NULL;

-- name: set_branch
UPDATE tasks SET branch = :branch, base_sha = :base_sha, head_sha = :base_sha, config_sha = :base_sha
WHERE id = :task_id;

-- name: set_config
UPDATE tasks SET config_sha = :config_sha WHERE id = :task_id;

-- name: set_head
UPDATE tasks SET head_sha = :head_sha, updated_at = utc_now() WHERE id = :task_id;

-- name: set_work_home
UPDATE tasks SET work_home = :home WHERE id = :task_id AND work_home IS NOT :home;

-- name: away_at
SELECT id FROM tasks WHERE work_home = :home AND work_home IS NOT NULL AND stage NOT IN ('done', 'cancelled') ORDER BY id LIMIT 1000;

-- name: at_lost_homes
SELECT tasks.id FROM homes CROSS JOIN tasks -- few homes, and what lies at one
WHERE tasks.work_home = homes.home AND homes.seen_at < utc_after(-homes.lost_after_s) AND tasks.work_home IS NOT NULL AND tasks.stage NOT IN ('done', 'cancelled')
ORDER BY tasks.id LIMIT 1000;

-- name: set_gated
UPDATE tasks SET gated_sha = :gated_sha, updated_at = utc_now() WHERE id = :task_id;

-- name: set_track
UPDATE tasks SET track = :track WHERE id = :task_id;

-- name: set_pr
UPDATE tasks SET pr_number = :pr_number WHERE id = :task_id;

-- name: untidied
SELECT id FROM tasks WHERE stage IN ('done', 'cancelled') AND tidied_at IS NULL ORDER BY id LIMIT :limit;

-- name: tidied
UPDATE tasks SET tidied_at = utc_now() WHERE id = :task_id AND tidied_at IS NULL;

-- name: edge_taken
INSERT INTO task_edges (task_id, from_stage, to_stage, taken) VALUES (:task_id, :from_stage, :to_stage, 1)
ON CONFLICT (task_id, from_stage, to_stage) DO UPDATE SET taken = task_edges.taken + 1;

-- name: times_taken
SELECT coalesce(sum(taken - forgiven), 0) AS times FROM task_edges
WHERE task_id = :task_id AND from_stage = :from_stage AND to_stage = :to_stage;

-- name: forgive
UPDATE task_edges SET forgiven = taken WHERE task_id = :task_id AND forgiven < taken;
