-- The places of environments: whoever starts something there has the place, and keeps it until that is settled.

-- Begun under a version that gave nobody production's place; the last start there is whose it is.
INSERT INTO slots (name, repo, holder, task_id, taken_at)
SELECT 'environment:' || json_extract(evidence, '$.environment'), tasks.repo, 'task', tasks.id, utc_now()
FROM effects JOIN tasks ON tasks.id = effects.task_id
JOIN slots AS merge ON merge.task_id = tasks.id AND merge.name = 'merge:' || tasks.repo
WHERE tasks.stage = 'deploy' AND effects.name = 'deploy_init' AND effects.state <> 'revoked'
  AND json_extract(evidence, '$.step') = 'effect:deploy_init/production'
ORDER BY effects.sequence DESC
ON CONFLICT (name) DO NOTHING;

CREATE TRIGGER IF NOT EXISTS start_has_its_place BEFORE INSERT ON effects
WHEN NEW.name = 'deploy_init' AND NEW.state = 'intended' AND NOT EXISTS
     (SELECT 1 FROM slots WHERE task_id = NEW.task_id
      AND name = 'environment:' || json_extract(NEW.evidence, '$.environment'))
BEGIN SELECT RAISE(ABORT, 'the environment is not the task''s: nothing is started there'); END;

CREATE TRIGGER IF NOT EXISTS place_stays_for_a_start BEFORE DELETE ON slots
WHEN OLD.name LIKE 'environment:%' AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = OLD.task_id AND name IN ('deploy_init', 'deploy_undo')
      AND state IN ('intended', 'revoking', 'in_doubt')
      AND 'environment:' || json_extract(evidence, '$.environment') = OLD.name)
BEGIN SELECT RAISE(ABORT, 'a start there is unsettled: the place stays'); END;
