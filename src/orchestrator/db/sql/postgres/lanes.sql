-- name: one_claim_at_a_time
-- What runs is counted by the claim's own statement, which must see what the claim before it has committed.
SELECT pg_advisory_xact_lock(hashtextextended('orch: a claim', 0));
