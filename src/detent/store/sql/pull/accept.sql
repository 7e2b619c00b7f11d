-- Targets have accepted runs that this node holds: each becomes a lease, which a callback ends. $1 node; arrays: $2
-- job, $3 lane, $4 scheduled_at, $5 serial, $6 token, $7 when the call started, $8 the worker that stands for the
-- target, $9 tenant, $10 time limit, $11 lease. The live row is locked before its lease is inserted: no other statement
-- knows that lease yet. Returns what was not accepted, unless it was before and the reply was lost.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                         $7::timestamptz[], $8::bigint[], $9::integer[], $10::interval[], $11::interval[])
        AS t (job, lane, scheduled_at, serial, token, started, worker, tenant, time_limit, lease)
     ORDER BY job, lane),
locked AS MATERIALIZED (
    SELECT batch.* FROM batch CROSS JOIN LATERAL (
        SELECT FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at AND serial = batch.serial
           AND token = batch.token AND owner = $1 FOR UPDATE) r),
handed_over AS (
    UPDATE live_runs r SET owner = -locked.worker, started_at = locked.started, alone = NULL
      FROM locked WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND r.job = locked.job AND r.lane = locked.lane),
leased AS (
    INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, claimed_at, ends_at, lease,
        lease_until, accepted_at)
    SELECT job, scheduled_at, serial, token, worker, tenant, lane, started, started + time_limit, lease,
           least(now() + lease, started + time_limit), now() FROM locked
    ON CONFLICT (job, scheduled_at, serial) DO UPDATE
       SET token = excluded.token, worker = excluded.worker, tenant = excluded.tenant, lane = excluded.lane,
           claimed_at = excluded.claimed_at, ends_at = excluded.ends_at, lease = excluded.lease,
           lease_until = excluded.lease_until, alone_until = NULL, accepted_at = excluded.accepted_at)
SELECT job, lane FROM batch
 WHERE (job, lane) NOT IN (SELECT job, lane FROM locked)
   AND NOT EXISTS (SELECT FROM pull_leases l WHERE l.job = batch.job AND l.scheduled_at = batch.scheduled_at
                      AND l.serial = batch.serial AND l.token = batch.token)
