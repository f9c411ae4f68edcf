-- A repository may lie at GitHub.

ALTER TABLE repositories DROP CONSTRAINT repositories_forge_check;
ALTER TABLE repositories ADD CONSTRAINT repositories_forge_check CHECK (forge IN ('local', 'gitea', 'github'));
