-- name: add
INSERT INTO repositories (name, forge, location, prefix, added_at) VALUES (:name, :forge, :location, :prefix, utc_now())
ON CONFLICT (name) DO NOTHING;

-- name: get
SELECT * FROM repositories WHERE name = :name;

-- name: all
SELECT * FROM repositories ORDER BY name LIMIT 1000;

-- name: move
UPDATE repositories SET location = :location WHERE name = :name AND location = :known;

-- name: next_number
UPDATE repositories SET next_number = next_number + 1 WHERE name = :name RETURNING prefix, next_number - 1 AS number;

-- name: by_address
SELECT * FROM repositories WHERE forge IN (:forge, 'local') AND location IN (SELECT value FROM json_each(:addresses))
ORDER BY name LIMIT 1;
