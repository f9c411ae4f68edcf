-- name: add_task
-- Numbers are drawn from a sequence here: it is lifted above one that comes from outside, and NULL draws none.
INSERT INTO tasks (id, work_item, repo, title, stage, created_at, updated_at)
VALUES (CASE WHEN CAST(:task_id AS BIGINT) IS NULL OR EXISTS (SELECT 1 FROM tasks WHERE id = :task_id)
             THEN nextval('tasks_id_seq')
             ELSE least(:task_id, setval('tasks_id_seq', greatest(:task_id, (SELECT last_value FROM tasks_id_seq)))) END,
        :work_item, :repo, :title, 'created', utc_now(), utc_now())
RETURNING id;
