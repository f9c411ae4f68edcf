-- name: identity
SELECT installation_id, sequence FROM installation WHERE one = 1;

-- name: schema
SELECT user_version AS number FROM pragma_user_version;

-- name: begin
INSERT INTO installation_starts (start_id, at) VALUES (:start_id, utc_now());

-- name: forget_starts
DELETE FROM installation_starts WHERE start_id NOT IN
    (SELECT start_id FROM installation_starts ORDER BY at DESC, start_id LIMIT :kept);

-- name: starts
SELECT start_id FROM installation_starts;

-- name: marks
SELECT repositories.name AS repo, coalesce(generation, 0) AS generation, start_id, main_sha, cause, reason, closed_at,
       (SELECT json_extract(fact, '$.merged') FROM effects
        WHERE CAST(json_extract(evidence, '$.repo') AS TEXT) = repositories.name AND effects.name = 'merge_pr' AND state = 'applied'
          AND effects.id > coalesce(installation_marks.accepted, 0)
        ORDER BY CAST(json_extract(evidence, '$.candidate.sequence') AS BIGINT) DESC LIMIT 1) AS merged
FROM repositories LEFT JOIN installation_marks ON repo = repositories.name ORDER BY repositories.name LIMIT 1000;

-- name: claimed
INSERT INTO installation_marks (repo, generation, start_id, main_sha) VALUES (:repo, :generation, :start_id, :main_sha)
ON CONFLICT (repo) DO UPDATE SET generation = excluded.generation, start_id = excluded.start_id,
    main_sha = excluded.main_sha, cause = NULL, reason = NULL, closed_at = NULL;

-- name: close
INSERT INTO installation_marks (repo, cause, reason, closed_at) VALUES (:repo, :cause, :reason, utc_now())
ON CONFLICT (repo) DO UPDATE SET cause = excluded.cause, reason = excluded.reason, closed_at = excluded.closed_at
WHERE installation_marks.cause IS NOT excluded.cause OR installation_marks.reason IS NOT excluded.reason;

-- name: known_nonces
SELECT nonce FROM candidates WHERE nonce IN (SELECT value FROM json_each(:nonces))
UNION ALL SELECT name FROM accepted_traces WHERE name IN (SELECT value FROM json_each(:nonces));

-- name: known_runs
SELECT run_dir AS name FROM agent_runs WHERE job_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:jobs));

-- name: known_deploys
SELECT json_extract(evidence, '$.environment') || '/' || json_extract(evidence, '$.generation') || '-'
       || json_extract(evidence, '$.sha') AS name
FROM json_each(:versions) AS version CROSS JOIN effects
WHERE json_extract(evidence, '$.sha') = version.value AND name IN ('deploy_init', 'deploy_undo')
UNION ALL -- drawn with a start of ourselves: its runner performs it before anybody can intend it
SELECT json_extract(evidence, '$.environment') || '/' || json_extract(evidence, '$.conditional_undo.judged.generation') || '-'
       || json_extract(evidence, '$.sha')
FROM json_each(:versions) AS version CROSS JOIN effects
WHERE json_extract(evidence, '$.sha') = version.value AND name IN ('deploy_init', 'deploy_undo')
  AND name = 'deploy_init' AND json_extract(evidence, '$.conditional_undo') IS NOT NULL;

-- name: accepted_traces
SELECT name FROM accepted_traces;

-- name: folder
SELECT state_id FROM installation WHERE one = 1;

-- name: folder_to_stay
SELECT state_id FROM installation WHERE one = 1; -- SQLite has one writer: nobody changes it meanwhile

-- name: take_folder
UPDATE installation SET state_id = :state_id WHERE one = 1 AND state_id IS NULL;

-- name: exchange_folder
UPDATE installation SET state_id = :state_id WHERE one = 1 AND state_id = :lost;
