-- name: lock_environment
-- The row may not be there yet, so a lock with the environment's name is taken, till the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(:environment, 0));
