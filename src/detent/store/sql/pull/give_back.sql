-- Return runs to their queues, uncounted, when the worker they were claimed for disconnected before it received them.
-- Arrays: $1 job, $2 scheduled_at, $3 serial, $4 token
WITH leases AS MATERIALIZED (
    SELECT l.* FROM (SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::bigint[])
        AS t (job, scheduled_at, serial, token) ORDER BY job, scheduled_at, serial) batch CROSS JOIN LATERAL (
        SELECT * FROM pull_leases
         WHERE job = batch.job AND scheduled_at = batch.scheduled_at AND serial = batch.serial AND token = batch.token
             FOR UPDATE) l),
released AS (
    DELETE FROM pull_leases t USING leases
     WHERE t.job = ANY (ARRAY(SELECT job FROM leases)) AND t.job = leases.job AND t.scheduled_at = leases.scheduled_at
       AND t.serial = leases.serial)
UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1 FROM leases
 WHERE r.job = ANY (ARRAY(SELECT job FROM leases)) AND r.job = leases.job AND r.lane = leases.lane
   AND r.token = leases.token AND r.owner = -leases.worker RETURNING r.job, r.lane
