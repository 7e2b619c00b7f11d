-- Claim runs that are ready, each under a lease. $1 tenant, $2 worker, $3 queue name, $4 the worker's capabilities, $5
-- whether it has every function, $6 limit, $7 lease, $8 as $5 in run/claim. Ranges as there. Arrays: $9 job, $10
-- scheduled_at, $11 serial of the runs that the worker was offered and claims, NULL: it claims any. There is no node to
-- fence on: the lease is the fence. That this database is not a copy, which a node checks before it joins, is checked
-- here. The worker does not report when a run starts, so where a crash must be distinguished from a wait, the run
-- counts as started from here on. A suspect, whose worker was lost although it had been lost before (crashes > 1), is
-- given alone: to a worker that holds nothing, which then gets nothing else until the lease can have ended. If no such
-- worker comes, any worker gets it after a wait; then its loss does not count. Both times double with each loss, so
-- that the run is eventually alone for long enough.
WITH RECURSIVE served AS MATERIALIZED (
    SELECT queue FROM queues
     WHERE tenant = $1 AND name = $3
       AND (needs = ANY ($4::text[]) OR ($5 AND needs ~ '^(task:)?(python|process):'))
       AND EXISTS (SELECT FROM cluster JOIN whereabouts USING (system_identifier, database_oid, table_oid, timeline))
       AND NOT EXISTS (SELECT FROM pull_leases WHERE worker = $2 AND alone_until > now())),
pairs AS (
    SELECT queue, 101::smallint AS priority FROM served WHERE $9::bigint[] IS NULL
    UNION ALL
    SELECT pairs.queue, lower.priority FROM pairs CROSS JOIN LATERAL (
        SELECT priority FROM live_runs
         WHERE queue = pairs.queue AND priority < pairs.priority AND owner IS NULL AND lane >= 0
         ORDER BY priority DESC LIMIT 1) lower),
ranges AS MATERIALIZED (
    SELECT * FROM pairs WHERE priority < 101
     ORDER BY CASE WHEN $8::boolean THEN 0 ELSE priority END DESC, random()),
found AS MATERIALIZED (
    SELECT r.* FROM ranges CROSS JOIN LATERAL (
        SELECT job, lane, crashes FROM live_runs
         WHERE queue = ranges.queue AND priority = ranges.priority AND not_before <= now() AND owner IS NULL
           AND lane >= 0
           AND EXISTS (SELECT FROM jobs j WHERE j.job = live_runs.job AND j.tenant = $1)
           AND (crashes < 2 OR NOT (SELECT EXISTS (SELECT FROM pull_leases WHERE worker = $2))
                OR not_before < now() - interval '30 seconds' * 2 ^ least(crashes - 2, 16))
         ORDER BY not_before LIMIT $6 FOR UPDATE SKIP LOCKED) r LIMIT $6),
named AS MATERIALIZED (                      -- by key; num_nonnulls as in run/claim_offered
    SELECT r.* FROM unnest($9::bigint[], $10::timestamptz[], $11::integer[]) AS asked (job, scheduled_at, serial)
     CROSS JOIN LATERAL (
        SELECT job, lane, crashes FROM live_runs
         WHERE job = asked.job AND scheduled_at = asked.scheduled_at AND serial = asked.serial
           AND queue = ANY (ARRAY(SELECT queue FROM served)) AND num_nonnulls(owner) = 0 AND lane >= 0
           AND coalesce(not_before, 'infinity') <= now()
           AND EXISTS (SELECT FROM jobs j WHERE j.job = live_runs.job AND j.tenant = $1)
           AND (crashes < 2 OR NOT (SELECT EXISTS (SELECT FROM pull_leases WHERE worker = $2))
                OR not_before < now() - interval '30 seconds' * 2 ^ least(crashes - 2, 16))
           FOR UPDATE SKIP LOCKED) r LIMIT $6),
ready AS MATERIALIZED (SELECT * FROM found UNION ALL SELECT * FROM named),
picked AS MATERIALIZED (
    SELECT job, lane FROM ready WHERE NOT EXISTS (SELECT FROM ready WHERE crashes > 1)
    UNION ALL (SELECT job, lane FROM ready WHERE crashes > 1 ORDER BY crashes DESC LIMIT 1)),
accompanied AS (                             -- a run that this worker got alone is no longer alone
    UPDATE pull_leases SET alone_until = NULL
     WHERE worker = $2 AND alone_until IS NOT NULL AND EXISTS (SELECT FROM picked)),
taken AS (
    UPDATE live_runs r SET limited = r.limited OR EXISTS (
               SELECT FROM limits l WHERE l.tenant = $1 AND (l.queue IS NULL OR l.queue = $3)),
           owner = -$2::bigint, started_at = CASE WHEN r.once OR r.crashes > 0 THEN now() END,
           token = greatest(r.token, (SELECT incarnation FROM cluster) << 22) + 1
     WHERE r.job = ANY (ARRAY(SELECT job FROM picked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM picked)) IS TRUE
         RETURNING r.*),
known AS MATERIALIZED (
    SELECT t.job, t.lane, t.scheduled_at, t.serial, t.token, t.revision, t.attempt, t.crashes, t.once, t.cancel,
           CASE WHEN t.serial >= 201326592 THEN coalesce(t.payload::text, '') END AS payload, t.key AS concurrency_key,
           j.id,
           j.name, j.created_at, d.definition, CASE WHEN t.crashes > 1 AND NOT EXISTS (SELECT FROM pull_leases
            WHERE worker = $2)
               THEN now() + ($7::interval + interval '10 seconds') * 2 ^ least(t.crashes - 2, 16) END AS alone_until,
           now() + make_interval(secs => coalesce((d.definition->>'timeout_seconds')::float8, 300)) AS ends_at
      FROM taken t
      JOIN jobs j ON j.job = t.job
      LEFT JOIN job_revisions o ON o.job = t.job AND o.revision = t.revision AND j.revision <> t.revision
     CROSS JOIN LATERAL (
        SELECT CASE WHEN j.revision = t.revision THEN j.definition ELSE o.definition END AS definition) d
     ORDER BY CASE WHEN $8::boolean THEN 0 ELSE t.priority END DESC, t.not_before),
leased AS (
    INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, ends_at, lease, lease_until,
        alone_until)
    SELECT job, scheduled_at, serial, token, $2, $1, lane, ends_at, $7, least(now() + $7::interval, ends_at),
           alone_until FROM known
    ON CONFLICT (job, scheduled_at, serial) DO UPDATE
       SET token = excluded.token, worker = excluded.worker, tenant = excluded.tenant, lane = excluded.lane,
           claimed_at = excluded.claimed_at, ends_at = excluded.ends_at, lease = excluded.lease,
           lease_until = excluded.lease_until, alone_until = excluded.alone_until, accepted_at = NULL)
SELECT *, least(now() + $7::interval, ends_at) AS lease_until FROM known
