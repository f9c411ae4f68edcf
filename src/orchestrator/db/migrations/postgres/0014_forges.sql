-- A repository may lie at a Gitea or Forgejo.

ALTER TABLE repositories DROP CONSTRAINT repositories_forge_check;
ALTER TABLE repositories ADD CONSTRAINT repositories_forge_check CHECK (forge IN ('local', 'gitea'));
ALTER TABLE repositories ALTER COLUMN forge SET DEFAULT 'local';
