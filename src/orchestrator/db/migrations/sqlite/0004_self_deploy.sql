-- A deploy of ourselves is not done while its runner may still undo it.
CREATE TRIGGER IF NOT EXISTS stage_waits_for_conditional_undo BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage = 'done' AND EXISTS
     (SELECT 1 FROM effects WHERE task_id = NEW.id AND name = 'deploy_init' AND state = 'applied'
      AND json_extract(evidence, '$.conditional_undo') IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM effects AS undo WHERE undo.state IN ('applied', 'revoked')
                      AND undo.sequence = json_extract(effects.evidence, '$.conditional_undo.sequence')))
BEGIN SELECT RAISE(ABORT, 'its deploy may still be undone: not done'); END;
