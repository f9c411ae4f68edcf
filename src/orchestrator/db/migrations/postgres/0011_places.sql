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

-- The task's epoch row is locked by then: whoever frees the place locks it, too.
CREATE FUNCTION start_has_its_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS
       (SELECT 1 FROM slots WHERE task_id = NEW.task_id
        AND name = 'environment:' || json_extract(NEW.evidence, '$.environment')) THEN
        RAISE EXCEPTION 'the environment is not the task''s: nothing is started there' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER start_has_its_place BEFORE INSERT ON effects
FOR EACH ROW WHEN (NEW.name = 'deploy_init' AND NEW.state = 'intended') EXECUTE FUNCTION start_has_its_place();

CREATE FUNCTION place_stays_for_a_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM transition_epoch WHERE task_id = OLD.task_id FOR UPDATE;
    IF EXISTS
       (SELECT 1 FROM effects WHERE task_id = OLD.task_id AND name IN ('deploy_init', 'deploy_undo')
        AND state IN ('intended', 'revoking', 'in_doubt')
        AND 'environment:' || json_extract(evidence, '$.environment') = OLD.name) THEN
        RAISE EXCEPTION 'a start there is unsettled: the place stays' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER place_stays_for_a_start BEFORE DELETE ON slots
FOR EACH ROW WHEN (OLD.name LIKE 'environment:%') EXECUTE FUNCTION place_stays_for_a_start();
