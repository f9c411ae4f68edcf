-- name: schema
-- SQLite keeps the number in its file's header; here it has a table.
SELECT number FROM schema_version;

-- name: known_deploys
-- An array goes through the index of versions; a list is joined by reading the whole ledger.
SELECT json_extract(evidence, '$.environment') || '/' || json_extract(evidence, '$.generation') || '-'
       || json_extract(evidence, '$.sha') AS name
FROM effects WHERE name IN ('deploy_init', 'deploy_undo')
  AND json_extract(evidence, '$.sha') = ANY (ARRAY(SELECT value FROM json_each(:versions)))
UNION ALL
SELECT json_extract(evidence, '$.environment') || '/' || json_extract(evidence, '$.conditional_undo.judged.generation') || '-'
       || json_extract(evidence, '$.sha')
FROM effects WHERE name = 'deploy_init' AND json_extract(evidence, '$.conditional_undo') IS NOT NULL
  AND json_extract(evidence, '$.sha') = ANY (ARRAY(SELECT value FROM json_each(:versions)));

-- name: folder_to_stay
-- Whoever exchanges it meanwhile waits until this transaction has ended.
SELECT state_id FROM installation WHERE one = 1 FOR SHARE;
