-- name: connect
INSERT INTO tracker_projects (repo, tracker, location, remote_id, our_user)
VALUES (:repo, :tracker, :location, :remote_id, :our_user)
ON CONFLICT DO NOTHING;

-- name: leave
UPDATE tracker_projects SET left_at = utc_now() WHERE repo = :repo AND left_at IS NULL;

-- name: come_back
UPDATE tracker_projects SET left_at = NULL, read_to = NULL, due_at = NULL -- what was marked meanwhile is found
WHERE repo = :repo AND tracker = :tracker AND remote_id = :remote_id AND left_at IS NOT NULL;

-- name: forget_left
DELETE FROM tracker_projects WHERE repo = :repo AND (tracker <> :tracker OR remote_id <> :remote_id) AND left_at IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.repo = tracker_projects.repo AND tasks.tracker = tracker_projects.tracker
                AND tasks.stage NOT IN ('done', 'cancelled'));

-- name: moved
UPDATE tracker_projects SET location = :location, due_at = NULL WHERE repo = :repo AND location = :known;

-- name: left
SELECT 1 FROM tracker_projects WHERE repo = :repo AND left_at IS NOT NULL;

-- name: project_of
SELECT * FROM tracker_projects WHERE repo = :repo;

-- name: project
SELECT * FROM tracker_projects WHERE tracker = :tracker AND remote_id = :remote_id;

-- name: projects
SELECT * FROM tracker_projects WHERE tracker = :tracker AND left_at IS NULL ORDER BY repo LIMIT 1000;

-- name: due
SELECT * FROM tracker_projects WHERE tracker = :tracker AND (due_at IS NULL OR due_at <= utc_now())
  AND (left_at IS NULL OR EXISTS
       (SELECT 1 FROM tasks WHERE tasks.repo = tracker_projects.repo AND tasks.tracker = tracker_projects.tracker
        AND tasks.stage NOT IN ('done', 'cancelled')))
ORDER BY due_at, repo LIMIT 1000;

-- name: claim
UPDATE tracker_projects SET due_at = utc_after(:for_s)
WHERE repo = :repo AND (due_at IS NULL OR due_at <= utc_now());

-- name: put_off
UPDATE tracker_projects SET due_at = utc_after(:for_s) WHERE repo = :repo;

-- name: soon
UPDATE tracker_projects SET due_at = utc_after(:in_s)
WHERE repo = :repo AND due_at IS NOT NULL AND due_at > utc_after(:in_s);

-- name: heard
UPDATE tracker_projects SET heard_at = utc_now() WHERE repo = :repo;

-- name: was_read
UPDATE tracker_projects SET read_to = coalesce(:read_to, read_to), our_user = :our_user, failing_since = NULL
WHERE repo = :repo;

-- name: failing
UPDATE tracker_projects SET failing_since = coalesce(failing_since, utc_now()) WHERE repo = :repo;

-- name: changed
UPDATE tracker_projects SET changed_at = :at WHERE repo = :repo AND (changed_at IS NULL OR changed_at < :at);

-- name: tell
UPDATE tracker_projects SET told = :what WHERE repo = :repo AND told IS NOT :what;

-- name: ticket
SELECT * FROM tracker_tickets WHERE tracker = :tracker AND external_id = :external_id;

-- name: take
INSERT INTO tracker_tickets (tracker, external_id, repo, since, seen, looked_at)
VALUES (:tracker, :external_id, :repo, :since, :seen, utc_now())
ON CONFLICT (tracker, external_id) DO UPDATE
SET repo = excluded.repo, since = excluded.since, seen = excluded.seen, looked_at = excluded.looked_at;

-- name: hint
UPDATE tracker_tickets SET hints = hints + 1 WHERE tracker = :tracker AND external_id = :external_id;

-- name: hinted
SELECT * FROM tracker_tickets WHERE tracker = :tracker AND hints > 0 ORDER BY repo, looked_at, external_id LIMIT 100;

-- name: claim_hints
UPDATE tracker_tickets SET hints = 0 WHERE tracker = :tracker AND external_id = :external_id AND hints = :hints;

-- name: looked
UPDATE tracker_tickets SET looked_at = utc_now(), seen = coalesce(:seen, seen)
WHERE tracker = :tracker AND external_id = :external_id;

-- name: longest_unseen
SELECT tracker_tickets.* FROM tasks CROSS JOIN tracker_tickets -- from what is open to its ticket
WHERE tasks.tracker = tracker_tickets.tracker AND tasks.external_id = tracker_tickets.external_id
  AND tracker_tickets.repo = :repo AND tasks.repo = :repo AND tasks.stage NOT IN ('done', 'cancelled')
ORDER BY looked_at, tracker_tickets.external_id LIMIT :limit;
