-- A repository may lie at GitHub. SQLite cannot widen a CHECK: a column takes the other's place.

ALTER TABLE repositories ADD COLUMN kind TEXT NOT NULL DEFAULT 'local' CHECK (kind IN ('local', 'gitea', 'github'));
UPDATE repositories SET kind = forge;
ALTER TABLE repositories DROP COLUMN forge;
ALTER TABLE repositories RENAME COLUMN kind TO forge;
