-- The serial gate under a freeze (DESIGN §3, "Broken after the merge"): what the code keeps, the database refuses to break.

CREATE TRIGGER IF NOT EXISTS frozen_slot_is_never_free BEFORE DELETE ON slots
WHEN OLD.name = 'merge:' || OLD.repo AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = OLD.repo)
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is never free'); END;

-- Whom it is lent to, or a task whose own deploy is started again. AFTER, so that a slot which is taken stays an answer.
CREATE TRIGGER IF NOT EXISTS frozen_slot_is_lent_when_taken AFTER INSERT ON slots
WHEN NEW.holder = 'task' AND NEW.name = 'merge:' || NEW.repo
 AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo AND lent_to IS NOT NEW.task_id)
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task_id AND stage = 'deploy')
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is not lent to this task'); END;
CREATE TRIGGER IF NOT EXISTS frozen_slot_is_lent_when_moved BEFORE UPDATE ON slots
WHEN NEW.holder = 'task' AND NEW.name = 'merge:' || NEW.repo AND NEW.task_id IS NOT OLD.task_id
 AND EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo AND lent_to IS NOT NEW.task_id)
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task_id AND stage = 'deploy')
BEGIN SELECT RAISE(ABORT, 'the repository is frozen: its merge slot is not lent to this task'); END;

CREATE TRIGGER IF NOT EXISTS slot_is_kept_for_a_freeze AFTER INSERT ON slots
WHEN NEW.holder = 'freeze' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'there is no freeze to keep the slot for'); END;
CREATE TRIGGER IF NOT EXISTS slot_is_given_to_a_freeze BEFORE UPDATE ON slots
WHEN NEW.holder = 'freeze' AND NOT EXISTS (SELECT 1 FROM repo_freeze WHERE repo = NEW.repo)
BEGIN SELECT RAISE(ABORT, 'there is no freeze to give the slot to'); END;

CREATE TRIGGER IF NOT EXISTS freeze_stays_for_an_undo BEFORE DELETE ON repo_freeze
WHEN EXISTS (SELECT 1 FROM effects JOIN tasks ON tasks.id = task_id WHERE repo = OLD.repo
             AND name = 'deploy_undo' AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an undo is unsettled: the freeze stays'); END;
CREATE TRIGGER IF NOT EXISTS freeze_is_not_lent_over_an_undo BEFORE UPDATE OF lent_to ON repo_freeze
WHEN NEW.lent_to IS NOT NULL AND NEW.lent_to IS NOT OLD.lent_to
 AND EXISTS (SELECT 1 FROM effects JOIN tasks ON tasks.id = task_id WHERE repo = NEW.repo
             AND name = 'deploy_undo' AND state IN ('intended', 'revoking', 'in_doubt'))
BEGIN SELECT RAISE(ABORT, 'an undo is unsettled: the slot is not lent'); END;
CREATE TRIGGER IF NOT EXISTS freeze_is_lent_within_its_repository BEFORE UPDATE OF lent_to ON repo_freeze
WHEN NEW.lent_to IS NOT NULL AND NOT EXISTS
     (SELECT 1 FROM tasks WHERE id = NEW.lent_to AND repo = NEW.repo
      AND stage NOT IN ('deploy', 'done', 'cancelled'))
BEGIN SELECT RAISE(ABORT, 'lent to a task of another repository, or one that is merged or has ended'); END;

CREATE TRIGGER IF NOT EXISTS stage_ends_its_loan BEFORE UPDATE OF stage ON tasks
WHEN NEW.stage IN ('done', 'cancelled') AND EXISTS (SELECT 1 FROM repo_freeze WHERE lent_to = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the merge slot is still lent to the task'); END;
