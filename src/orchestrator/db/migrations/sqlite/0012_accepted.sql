-- What messages are called after a person has accepted a restored database: numbers that its lost future has used for
-- others are used again, and whoever is told once for each name would not hear of them (DESIGN §6).

ALTER TABLE installation ADD COLUMN accepted TEXT;
