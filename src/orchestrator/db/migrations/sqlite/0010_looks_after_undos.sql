-- A look at production after an undo is known by the undo's number in the ledger, not by how its brief begins.

ALTER TABLE jobs ADD COLUMN undo INTEGER CHECK (undo IS NULL OR kind = 'production-health');
UPDATE jobs SET undo = CAST(substr(brief, 8) AS INTEGER), brief = 'after an undo'
WHERE kind = 'production-health' AND brief LIKE 'undone:%';
