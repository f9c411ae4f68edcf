-- name: add
INSERT INTO repositories (name, forge, location, prefix, added_at) VALUES (:name, :forge, :location, :prefix, utc_now())
ON CONFLICT (name) DO NOTHING;

-- name: get
SELECT repositories.*, left_at FROM repositories LEFT JOIN left_repositories ON repo = name WHERE name = :name;

-- name: all
SELECT repositories.*, left_at FROM repositories LEFT JOIN left_repositories ON repo = name ORDER BY name LIMIT 1000;

-- name: move
UPDATE repositories SET location = :location WHERE name = :name AND location = :known;

-- name: leave
INSERT INTO left_repositories (repo, left_at) VALUES (:name, utc_now()) ON CONFLICT (repo) DO NOTHING;

-- name: come_back
DELETE FROM left_repositories WHERE repo = :name;

-- name: idle
SELECT repo AS name FROM left_repositories
WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.repo = left_repositories.repo AND tasks.stage NOT IN ('done', 'cancelled'));

-- name: next_number
UPDATE repositories SET next_number = next_number + 1 WHERE name = :name RETURNING prefix, next_number - 1 AS number;

-- name: by_address
SELECT repositories.*, left_at FROM repositories LEFT JOIN left_repositories ON repo = name
WHERE forge IN (:forge, 'local') AND location IN (SELECT value FROM json_each(:addresses))
ORDER BY name LIMIT 1;
