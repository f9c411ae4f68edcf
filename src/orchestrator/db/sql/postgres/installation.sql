-- name: schema
-- SQLite keeps the number in its file's header; here it has a table.
SELECT number FROM schema_version;
