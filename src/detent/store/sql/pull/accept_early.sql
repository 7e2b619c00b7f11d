-- A callback has overtaken the answer 202: the run is still held by the node that calls the target. It becomes a lease,
-- as in pull/accept, which the next statement of the transaction settles. $1 tenant, $2 job, $3 scheduled_at, $4
-- serial, $5 token, $6 the worker that stands for the target. Only where the job waits for callbacks, and under the
-- token that the target got. The node that then reports its answer finds the run no longer its own. Returns a row if it
-- was held.
WITH locked AS MATERIALIZED (
    SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, coalesce(r.started_at, now()) AS started, d.definition
      FROM (
        SELECT * FROM (
            SELECT * FROM live_runs
             WHERE job = $2 AND lane < 32768 AND scheduled_at = $3 AND serial = $4 AND token = $5 AND owner > 0
               FOR UPDATE) ticks
        UNION ALL
        SELECT * FROM (
            SELECT * FROM live_runs
             WHERE job = $2 AND lane = $4 AND lane >= 32768 AND scheduled_at = $3 AND serial = $4 AND token = $5
               AND owner > 0 FOR UPDATE) tasks) r
      JOIN jobs j ON j.job = r.job AND j.tenant = $1
      LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
     CROSS JOIN LATERAL (
        SELECT CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition) d
     WHERE d.definition->'target'->'callback' IS NOT NULL),
handed_over AS (
    UPDATE live_runs r SET owner = -$6::bigint, started_at = locked.started, alone = NULL
      FROM locked WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND r.job = locked.job AND r.lane = locked.lane)
INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, claimed_at, ends_at, lease,
    lease_until, accepted_at)
SELECT job, scheduled_at, serial, token, $6, $1, lane, started, 'infinity', interval '1 minute', now(), now()
  FROM locked
ON CONFLICT (job, scheduled_at, serial) DO UPDATE
   SET token = excluded.token, worker = excluded.worker, tenant = excluded.tenant, lane = excluded.lane,
       claimed_at = excluded.claimed_at, ends_at = excluded.ends_at, lease = excluded.lease,
       lease_until = excluded.lease_until, alone_until = NULL, accepted_at = excluded.accepted_at
RETURNING job
