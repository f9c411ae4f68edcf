-- name: mark_step
INSERT INTO steps (task_id, stage, round, step, evidence, at) VALUES (:task_id, :stage, :round, :step, :evidence, utc_now())
ON CONFLICT (task_id, stage, round, step) DO NOTHING;

-- name: forget_step
DELETE FROM steps WHERE task_id = :task_id AND stage = :stage AND round = :round AND step = :step;

-- name: steps_of_round
SELECT step, evidence, at FROM steps WHERE task_id = :task_id AND stage = :stage AND round = :round;

-- name: marks
SELECT DISTINCT step FROM steps WHERE task_id = :task_id AND substr(step, 1, length(:prefix)) = :prefix ORDER BY step;

-- name: passed
SELECT 1 FROM steps WHERE task_id = :task_id AND round = :round AND step = :step LIMIT 1;

-- name: record_check
INSERT INTO checks (task_id, stage, round, kind, sha, verdict, detail, at)
VALUES (:task_id, :stage, :round, :kind, :sha, :verdict, :detail, utc_now())
ON CONFLICT (task_id, stage, round, kind) DO UPDATE
SET sha = excluded.sha, verdict = excluded.verdict, detail = excluded.detail, at = excluded.at;

-- name: check_result
SELECT * FROM checks WHERE task_id = :task_id AND stage = :stage AND round = :round AND kind = :kind;

-- name: add_candidate
INSERT INTO candidates (task_id, round, sha, tree, base_sha, head_sha, nonce, sequence, fence, built_at)
VALUES (:task_id, :round, :sha, :tree, :base_sha, :head_sha, :nonce, :sequence, :fence, utc_now());

-- name: candidates
SELECT * FROM candidates WHERE task_id = :task_id ORDER BY round;

-- name: candidate_of
SELECT * FROM candidates WHERE task_id = :task_id
ORDER BY sha IS (SELECT json_extract(fact, '$.merged') FROM effects
                 WHERE task_id = :task_id AND name = 'merge_pr' AND state = 'applied') DESC, round DESC LIMIT 1;

-- name: task_of_candidate
SELECT task_id FROM candidates WHERE sha = :sha;

-- name: add_own_commit
INSERT INTO own_commits (repo, sha, task_id) VALUES (:repo, :sha, :task_id) ON CONFLICT DO NOTHING;

-- name: own_commits
SELECT sha FROM own_commits WHERE task_id = :task_id;

-- name: keep_document
INSERT INTO task_documents (task_id, name, round, subject, content, at)
VALUES (:task_id, :name, :round, :subject, :content, utc_now())
ON CONFLICT (task_id, name, round) DO UPDATE SET subject = excluded.subject, content = excluded.content, at = excluded.at;

-- name: document
SELECT * FROM task_documents WHERE task_id = :task_id AND name = :name AND round = :round;

-- name: documents
SELECT name, round, subject, content, at FROM task_documents WHERE task_id = :task_id ORDER BY name, round;
