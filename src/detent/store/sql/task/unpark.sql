-- Runs that wait for a place of their concurrency key become ready where one is free. Keys, without repeats: $1 job, $2
-- key: those of runs that have just ended, or what task/list_parked_keys found. As many runs as places are free; the
-- claim decides. Jobs that share the keys of their tenant are all checked.
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT t.job, t.key, c.key_shared, j.tenant FROM unnest($1::bigint[], $2::text[]) AS t (job, key)
     CROSS JOIN LATERAL (SELECT key_shared FROM cursors WHERE job = t.job LIMIT 1) c
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = t.job LIMIT 1) j),
parked_jobs AS (                             -- read only if a key is shared
    (SELECT job FROM backlog WHERE parked AND EXISTS (SELECT FROM wanted WHERE key_shared) ORDER BY job, key LIMIT 1)
    UNION ALL
    SELECT next.job FROM parked_jobs CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE parked AND job > parked_jobs.job ORDER BY job, key LIMIT 1) next),
keys AS MATERIALIZED (
    SELECT job, key FROM wanted
    UNION
    SELECT p.job, w.key FROM parked_jobs p
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = p.job LIMIT 1) j
     CROSS JOIN LATERAL (SELECT key_shared FROM cursors WHERE job = p.job LIMIT 1) c
      JOIN wanted w ON w.key_shared AND w.tenant = j.tenant WHERE c.key_shared),
free AS MATERIALIZED (
    SELECT k.job, k.key, coalesce(c.key_limit, CASE WHEN c.key_rate IS NULL THEN 1 ELSE 1000 END) - (
        SELECT count(*) FROM (
            SELECT job, lane, scheduled_at FROM key_places
             WHERE scope = CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE k.job END AND key = k.key OFFSET 0) x
         CROSS JOIN LATERAL (
            SELECT FROM live_runs r
             WHERE r.job = x.job AND r.lane = x.lane AND r.scheduled_at = x.scheduled_at LIMIT 1) r)
        AS places
      FROM keys k
     CROSS JOIN LATERAL (SELECT key_limit, key_rate, key_shared FROM cursors WHERE job = k.job LIMIT 1) c
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = k.job LIMIT 1) j),
next AS MATERIALIZED (
    SELECT b.* FROM free CROSS JOIN LATERAL (
        SELECT serial, scheduled_at, job FROM backlog
         WHERE parked AND job = free.job AND key = free.key AND not_before <= now()
         ORDER BY priority DESC, not_before LIMIT greatest(free.places, 0) FOR UPDATE SKIP LOCKED) b)
UPDATE backlog b SET parked = false
 WHERE b.serial = ANY (ARRAY(SELECT serial FROM next))
   AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM next)) IS TRUE
RETURNING b.job
