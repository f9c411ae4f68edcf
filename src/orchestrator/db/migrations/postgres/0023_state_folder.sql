-- Which state folder the processes share that serve the database, where it does not lie in the folder itself: what was
-- started outside is written down there alone. NULL: none has begun yet.

ALTER TABLE installation ADD COLUMN state_id TEXT;
