-- What was given up is counted whenever somebody looks at the queue, among all that was ever sent (law 7).

CREATE INDEX IF NOT EXISTS outbox_parked ON outbox (id) WHERE parked_at IS NOT NULL;
