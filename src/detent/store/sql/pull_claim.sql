-- Take runs that are ready, each under a lease. $1 tenant, $2 worker, $3 queue name, $4 what the worker has, $5 whether it
-- has every function, $6 limit, $7 lease, $8 as in claim. Ranges as there. There is no node to fence on: the lease is the fence,
-- and that this database is no copy, which nodes make sure of before they join, is asked here.
-- Nobody will tell when a run starts, so where a crash must be told from a wait it counts as started from here on.
WITH ranges AS MATERIALIZED (
    SELECT p, queue FROM queues, generate_series(9, 0, -1) AS p
     WHERE tenant = $1 AND name = $3 AND (needs = ANY ($4::text[]) OR ($5 AND (needs LIKE 'python:%' OR needs LIKE 'process:%')))
       AND EXISTS (SELECT FROM cluster JOIN whereabouts USING (system_identifier, database_oid, table_oid, timeline))
     ORDER BY CASE WHEN $8::boolean THEN 0 ELSE p END DESC, random()),
picked AS MATERIALIZED (
    SELECT r.* FROM ranges CROSS JOIN LATERAL (
        SELECT job, lane FROM live_runs
         WHERE queue = ranges.queue AND priority = ranges.p AND not_before <= now() AND owner IS NULL AND lane >= 0
           AND EXISTS (SELECT FROM jobs j WHERE j.job = live_runs.job AND j.tenant = $1)
         ORDER BY not_before LIMIT $6 FOR UPDATE SKIP LOCKED) r LIMIT $6),
taken AS (
    UPDATE live_runs r SET limited = r.limited OR EXISTS (
               SELECT FROM limits l WHERE l.tenant = $1 AND (l.queue IS NULL OR l.queue = $3)),
           owner = -$2::bigint, started_at = CASE WHEN r.once OR r.crashes > 0 THEN now() END,
           token = greatest(r.token, (SELECT incarnation FROM cluster) << 22) + 1
     WHERE r.job = ANY (ARRAY(SELECT job FROM picked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM picked)) IS TRUE RETURNING r.*),
known AS MATERIALIZED (
    SELECT t.job, t.lane, t.scheduled_at, t.serial, t.token, t.revision, t.attempt, t.crashes, t.once, t.cancel, j.id, j.name,
           j.created_at, d.definition, now() + make_interval(secs => coalesce((d.definition->>'timeout_seconds')::float8, 300)) AS ends_at
      FROM taken t
      JOIN jobs j ON j.job = t.job
      LEFT JOIN job_revisions o ON o.job = t.job AND o.revision = t.revision AND j.revision <> t.revision
     CROSS JOIN LATERAL (
        SELECT CASE WHEN j.revision = t.revision THEN j.definition ELSE o.definition END AS definition) d
     ORDER BY CASE WHEN $8::boolean THEN 0 ELSE t.priority END DESC, t.not_before),
leased AS (
    INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, ends_at, lease, lease_until)
    SELECT job, scheduled_at, serial, token, $2, $1, lane, ends_at, $7, least(now() + $7::interval, ends_at) FROM known
    ON CONFLICT (job, scheduled_at, serial) DO UPDATE
       SET token = excluded.token, worker = excluded.worker, tenant = excluded.tenant, lane = excluded.lane,
           claimed_at = excluded.claimed_at, ends_at = excluded.ends_at, lease = excluded.lease,
           lease_until = excluded.lease_until)
SELECT *, least(now() + $7::interval, ends_at) AS lease_until FROM known
