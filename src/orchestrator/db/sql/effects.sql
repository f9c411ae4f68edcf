-- name: next_sequence
UPDATE installation SET sequence = sequence + 1 WHERE one = 1 RETURNING sequence, installation_id;

-- name: intend
INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at)
VALUES (:task_id, :name, :key, :round, 'intended', :epoch, :sequence, :token, :actor, :evidence, utc_now())
ON CONFLICT (task_id, name, key, round) DO NOTHING
RETURNING *;

-- name: find
SELECT * FROM effects WHERE task_id = :task_id AND name = :name AND key = :key AND round = :round;

-- name: get
SELECT * FROM effects WHERE id = :effect_id;

-- name: of_task
SELECT * FROM effects WHERE task_id = :task_id ORDER BY id;

-- name: unsettled
SELECT * FROM effects WHERE task_id = :task_id AND state IN ('intended', 'revoking', 'in_doubt') ORDER BY id;

-- name: all_unsettled
SELECT effects.*, tasks.work_item FROM effects JOIN tasks ON tasks.id = task_id
WHERE state IN ('intended', 'revoking', 'in_doubt') ORDER BY effects.task_id, effects.id LIMIT 1000;

-- name: unsettled_starts
SELECT * FROM effects WHERE state IN ('intended', 'revoking', 'in_doubt') AND name IN ('deploy_init', 'deploy_undo')
ORDER BY task_id, id LIMIT 10000; -- one for each environment

-- name: doubt
UPDATE effects SET state = 'in_doubt', reason = :reason, cause = NULL
WHERE id = :effect_id AND state IN ('intended', 'revoking', 'in_doubt');

-- name: tasks_unsettled
SELECT DISTINCT task_id FROM effects WHERE state IN ('intended', 'revoking', 'in_doubt') ORDER BY task_id;

-- name: applied
SELECT * FROM effects WHERE task_id = :task_id AND name = :name AND state = 'applied' ORDER BY id DESC LIMIT 1;

-- name: settle
UPDATE effects SET state = :state, fact = :fact, reason = coalesce(nullif(:reason, ''), reason), settled_at = utc_now()
WHERE id = :effect_id AND state IN ('intended', 'revoking', 'in_doubt');

-- name: move
UPDATE effects SET state = :state, reason = :reason, cause = :cause
WHERE id = :effect_id AND state = :expected;

-- name: lock_environment
SELECT epoch FROM environment_epoch WHERE environment = :environment; -- SQLite has one writer: there is nothing to lock

-- name: highest_generation
SELECT coalesce(max(CAST(coalesce(json_extract(evidence, '$.conditional_undo.judged.generation'),
                                  json_extract(evidence, '$.generation')) AS BIGINT)), 0) AS generation FROM effects
WHERE name IN ('deploy_init', 'deploy_undo') AND json_extract(evidence, '$.environment') = :environment
  AND json_extract(evidence, '$.sha') = :sha;

-- name: unsettled_in_environment
SELECT 1 FROM effects
WHERE state IN ('intended', 'revoking', 'in_doubt') AND name IN ('deploy_init', 'deploy_undo')
  AND json_extract(evidence, '$.environment') = :environment
UNION ALL
SELECT 1 FROM effects
WHERE state = 'applied' AND name = 'deploy_init' AND json_extract(evidence, '$.conditional_undo') IS NOT NULL
  AND json_extract(evidence, '$.environment') = :environment
  AND NOT EXISTS (SELECT 1 FROM effects AS undo WHERE undo.state IN ('applied', 'revoked')
                  AND undo.sequence = CAST(json_extract(effects.evidence, '$.conditional_undo.sequence') AS BIGINT))
LIMIT 1;

-- name: last_start_in_environment
SELECT effects.* FROM effects WHERE name IN ('deploy_init', 'deploy_undo') AND state = 'applied'
  AND json_extract(evidence, '$.environment') = :environment ORDER BY sequence DESC LIMIT 1;

-- name: last_starts
WITH RECURSIVE known (environment) AS ( -- one step through effects_starts for each
    SELECT min(json_extract(evidence, '$.environment')) FROM effects WHERE name IN ('deploy_init', 'deploy_undo')
    UNION ALL
    SELECT (SELECT min(json_extract(evidence, '$.environment')) FROM effects
            WHERE name IN ('deploy_init', 'deploy_undo') AND json_extract(evidence, '$.environment') > known.environment)
    FROM known WHERE known.environment IS NOT NULL
)
SELECT effects.* FROM known JOIN effects ON effects.sequence =
    (SELECT sequence FROM effects AS start WHERE name IN ('deploy_init', 'deploy_undo') AND state = 'applied'
     AND json_extract(start.evidence, '$.environment') = known.environment ORDER BY sequence DESC LIMIT 1)
ORDER BY effects.sequence LIMIT 1000;

-- name: unsettled_undo
SELECT tasks.work_item FROM effects JOIN tasks ON tasks.id = task_id
WHERE tasks.repo = :repo AND name = 'deploy_undo' AND state IN ('intended', 'revoking', 'in_doubt') LIMIT 1;

-- name: self_start
SELECT * FROM effects WHERE task_id = :task_id AND name = 'deploy_init'
  AND json_extract(evidence, '$.conditional_undo') IS NOT NULL ORDER BY sequence DESC LIMIT 1;

-- name: undecided_self_starts
SELECT effects.* FROM tasks CROSS JOIN effects -- from what is open to what it started
WHERE effects.task_id = tasks.id AND tasks.stage NOT IN ('done', 'cancelled') AND tasks.stage = 'deploy' AND name = 'deploy_init' AND state <> 'revoked'
  AND json_extract(evidence, '$.conditional_undo') IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM effects AS undo WHERE undo.state IN ('applied', 'revoked')
                  AND undo.sequence = CAST(json_extract(effects.evidence, '$.conditional_undo.sequence') AS BIGINT))
ORDER BY effects.sequence;

-- name: by_sequence
SELECT * FROM effects WHERE sequence = :sequence;

-- name: later_merge
-- Merges follow one another as their candidates do; a restore imports them in whatever order it comes to them.
SELECT tasks.work_item FROM effects AS later JOIN tasks ON tasks.id = later.task_id
WHERE CAST(json_extract(later.evidence, '$.repo') AS TEXT) = (SELECT repo FROM tasks WHERE id = :task_id)
  AND later.name = 'merge_pr' AND later.state = 'applied'
  AND CAST(json_extract(later.evidence, '$.candidate.sequence') AS BIGINT) >
      (SELECT max(CAST(json_extract(evidence, '$.candidate.sequence') AS BIGINT)) FROM effects
       WHERE task_id = :task_id AND name = 'merge_pr' AND state = 'applied')
ORDER BY CAST(json_extract(later.evidence, '$.candidate.sequence') AS BIGINT) DESC LIMIT 1;

-- name: done_since
SELECT tasks.work_item FROM effects AS later JOIN tasks ON tasks.id = later.task_id
WHERE CAST(json_extract(later.evidence, '$.repo') AS TEXT) = (SELECT repo FROM tasks WHERE id = :task_id) AND tasks.stage = 'done'
  AND later.name = 'merge_pr' AND later.state = 'applied'
  AND CAST(json_extract(later.evidence, '$.candidate.sequence') AS BIGINT) >
      (SELECT max(CAST(json_extract(evidence, '$.candidate.sequence') AS BIGINT)) FROM effects
       WHERE task_id = :task_id AND name = 'merge_pr' AND state = 'applied')
ORDER BY CAST(json_extract(later.evidence, '$.candidate.sequence') AS BIGINT) DESC LIMIT 1;

-- name: raise_environment
INSERT INTO environment_epoch (environment, epoch) VALUES (:environment, 1)
ON CONFLICT (environment) DO UPDATE SET epoch = environment_epoch.epoch + 1 RETURNING epoch;

-- name: on_show
SELECT effects.*, tasks.work_item, failing.reason AS failure, failing.attempts, failing.since AS failing_since
FROM effects JOIN tasks ON tasks.id = effects.task_id
LEFT JOIN outside_failures AS failing ON failing.effect_id = effects.id
WHERE effects.id < :before AND (CAST(:task_id AS BIGINT) IS NULL OR effects.task_id = :task_id)
  AND (:everything OR effects.state IN ('intended', 'revoking', 'in_doubt'))
ORDER BY effects.id DESC LIMIT :limit;
