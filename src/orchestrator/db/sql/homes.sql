-- name: enter
INSERT INTO homes (home, host, folder, lost_after_s, seen_at)
VALUES (:home, :host, :folder, :lost_after_s, utc_now())
ON CONFLICT (home) DO UPDATE SET host = excluded.host, folder = excluded.folder,
                                 lost_after_s = excluded.lost_after_s, seen_at = excluded.seen_at;

-- name: claim
INSERT INTO homes (home, host, folder, lost_after_s, seen_at)
VALUES (:home, :host, :folder, :lost_after_s, utc_now()) ON CONFLICT (home) DO NOTHING;

-- name: seen
UPDATE homes SET seen_at = utc_now() WHERE home = :home;

-- name: forget
DELETE FROM homes WHERE home = :home;

-- name: get
SELECT *, seen_at < utc_after(-lost_after_s) AS lost, seen_at < utc_after(-:ttl_s) AS silent
FROM homes WHERE home = :home;

-- name: all
SELECT *, seen_at < utc_after(-lost_after_s) AS lost, FALSE AS silent FROM homes ORDER BY seen_at DESC LIMIT 1000;
