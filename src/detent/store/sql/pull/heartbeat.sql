-- Extend leases. $1 tenant; arrays: $2 job, $3 scheduled_at, $4 serial, $5 token, $6 lease, or NULL: a minute, and for
-- an accepted run its lease so far, at first that of its job. An expired lease is extended too, as long as its run was
-- not rescued; a lease whose run is over its time limit is not. Returns positions, counted from 1, with the new end
-- and whether the run is asked to stop; a lease that is not returned is lost.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[], $6::interval[])
        WITH ORDINALITY AS t (job, scheduled_at, serial, token, lease, position)),
leases AS MATERIALIZED (
    SELECT batch.job, batch.scheduled_at, batch.serial, batch.position, l.lane, coalesce(batch.lease, l.own) AS lease
      FROM (SELECT * FROM batch ORDER BY job, scheduled_at, serial) batch CROSS JOIN LATERAL (
        SELECT lane, CASE WHEN accepted_at IS NULL THEN interval '1 minute' ELSE lease END AS own FROM pull_leases
         WHERE job = batch.job AND scheduled_at = batch.scheduled_at AND serial = batch.serial AND token = batch.token
           AND tenant = $1
           AND ends_at > now() FOR UPDATE) l),
extended AS (
    UPDATE pull_leases l SET lease = leases.lease, lease_until = least(now() + leases.lease, l.ends_at) FROM leases
     WHERE l.job = ANY (ARRAY(SELECT job FROM leases)) AND l.job = leases.job AND l.scheduled_at = leases.scheduled_at
       AND l.serial = leases.serial
    RETURNING l.job, l.lane, l.lease_until)
SELECT leases.position, extended.lease_until, coalesce(r.cancel, false) AS cancel
  FROM leases JOIN extended ON extended.job = leases.job AND extended.lane = leases.lane
      LEFT JOIN live_runs r ON r.job = ANY (ARRAY(SELECT job FROM leases)) AND r.job = leases.job
          AND r.lane = leases.lane
