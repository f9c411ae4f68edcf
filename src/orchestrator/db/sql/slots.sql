-- name: take
INSERT INTO slots (name, repo, holder, task_id, taken_at) VALUES (:name, :repo, 'task', :task_id, utc_now())
ON CONFLICT (name) DO NOTHING;

-- name: free
DELETE FROM slots WHERE task_id = :task_id AND name = :name;

-- name: free_all
DELETE FROM slots WHERE task_id = :task_id;

-- name: held_by
SELECT name FROM slots WHERE task_id = :task_id ORDER BY name;

-- name: get
SELECT slots.*, tasks.work_item FROM slots LEFT JOIN tasks ON tasks.id = slots.task_id WHERE name = :name;

-- name: all
SELECT slots.*, tasks.work_item FROM slots LEFT JOIN tasks ON tasks.id = slots.task_id ORDER BY name LIMIT 1000;

-- name: unfit
SELECT slots.*, tasks.work_item, tasks.stage FROM slots JOIN tasks ON tasks.id = slots.task_id
WHERE tasks.stage NOT IN ('deploy-staging', 'deploy') ORDER BY name LIMIT 1000;

-- name: give_to_freeze
UPDATE slots SET holder = 'freeze', task_id = NULL, taken_at = utc_now()
WHERE name = :name AND task_id = :task_id AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = slots.repo);

-- name: keep_for_freeze
INSERT INTO slots (name, repo, holder, task_id, taken_at) VALUES (:name, :repo, 'freeze', NULL, utc_now())
ON CONFLICT (name) DO NOTHING;

-- name: take_from_freeze
UPDATE slots SET holder = 'task', task_id = :task_id, taken_at = utc_now()
WHERE name = :name AND holder = 'freeze' AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = slots.repo);

-- name: free_of_freeze
DELETE FROM slots WHERE name = :name AND holder = 'freeze';

-- name: freeze
INSERT INTO repo_freeze (repo, reason, task_id, frozen_at) VALUES (:repo, :reason, :task_id, utc_now())
ON CONFLICT (repo) DO NOTHING;

-- name: pass_freeze_on
UPDATE repo_freeze SET task_id = :task_id, reason = :reason WHERE repo = :repo;

-- name: lend
UPDATE repo_freeze SET lent_to = :task_id WHERE repo = :repo;

-- name: end_loan
UPDATE repo_freeze SET lent_to = NULL WHERE lent_to = :task_id;

-- name: frozen
SELECT repo_freeze.*, broken.work_item, borrower.work_item AS lent_item FROM repo_freeze
LEFT JOIN tasks AS broken ON broken.id = repo_freeze.task_id
LEFT JOIN tasks AS borrower ON borrower.id = repo_freeze.lent_to
WHERE repo_freeze.repo = :repo;

-- name: freezes
SELECT repo_freeze.*, broken.work_item, borrower.work_item AS lent_item FROM repo_freeze
LEFT JOIN tasks AS broken ON broken.id = repo_freeze.task_id
LEFT JOIN tasks AS borrower ON borrower.id = repo_freeze.lent_to
ORDER BY repo_freeze.repo;

-- name: unfreeze
DELETE FROM repo_freeze WHERE repo = :repo;

-- name: newest_baseline
SELECT percent, merged_sha, at FROM coverage_baseline WHERE repo = :repo ORDER BY id DESC LIMIT 1;

-- name: ratchet
INSERT INTO coverage_baseline (repo, merged_sha, percent, measured, task_id, at)
VALUES (:repo, :merged_sha,
        (SELECT max(percent) FROM (SELECT CAST(:measured AS DOUBLE PRECISION) AS percent
                                   UNION ALL SELECT percent FROM coverage_baseline WHERE repo = :repo) AS known),
        :measured, :task_id, utc_now())
ON CONFLICT (repo, merged_sha) DO NOTHING;
