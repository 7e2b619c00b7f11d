-- Runs that were claimed for a worker that is gone before it could be told: they go back, uncounted.
-- Arrays: $1 job, $2 scheduled_at, $3 serial, $4 token
WITH p AS MATERIALIZED (
    SELECT l.* FROM (SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::bigint[])
        AS t (job, scheduled_at, serial, token) ORDER BY job, scheduled_at, serial) v CROSS JOIN LATERAL (
        SELECT * FROM pull_leases
         WHERE job = v.job AND scheduled_at = v.scheduled_at AND serial = v.serial AND token = v.token FOR UPDATE) l),
g AS (
    DELETE FROM pull_leases t USING p
     WHERE t.job = ANY (ARRAY(SELECT job FROM p)) AND t.job = p.job AND t.scheduled_at = p.scheduled_at AND t.serial = p.serial)
UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1 FROM p
 WHERE r.job = ANY (ARRAY(SELECT job FROM p)) AND r.job = p.job AND r.lane = p.lane AND r.token = p.token AND r.owner = -p.worker RETURNING r.job, r.lane
