-- Claim runs that wait for a place of their concurrency key, where runs that have just ended freed some. $1 node, $2
-- incarnation; keys, without repeats: $3 job, $4 key; $5 queues that are served, $6 limit. One statement instead of
-- task/unpark, task/list_heads and task/claim_keyed: what a hot key waits for is the way from one of its runs to the
-- next. Runs that are not claimed here although a place is free become ready, as in task/unpark. The rate of a key was
-- counted when the run was parked. Returns both kinds of runs: `claimed` tells them apart.
WITH RECURSIVE fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
wanted AS MATERIALIZED (
    SELECT t.job, t.key, c.key_shared, j.tenant FROM unnest($3::bigint[], $4::text[]) AS t (job, key)
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
places AS MATERIALIZED (
    SELECT k.job, k.key, s.scope, j.status = 'active' AND c.task AS starts,
           coalesce(c.key_limit, CASE WHEN c.key_rate IS NULL THEN 1 END) AS key_limit,
           coalesce(c.key_limit, CASE WHEN c.key_rate IS NULL THEN 1 ELSE 1000 END) - (
        SELECT count(*) FROM (
            SELECT job, lane, scheduled_at FROM key_places WHERE scope = s.scope AND key = k.key OFFSET 0) x
         CROSS JOIN LATERAL (
            SELECT FROM live_runs r
             WHERE r.job = x.job AND r.lane = x.lane AND r.scheduled_at = x.scheduled_at LIMIT 1) r)
        AS free
      FROM keys k
     CROSS JOIN LATERAL (SELECT task, key_limit, key_rate, key_shared FROM cursors WHERE job = k.job LIMIT 1) c
     CROSS JOIN LATERAL (SELECT status, tenant FROM jobs WHERE job = k.job LIMIT 1) j
     CROSS JOIN LATERAL (SELECT CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE k.job END AS scope) s),
next AS MATERIALIZED (
    SELECT b.*, places.scope, places.key_limit,
           places.starts AND EXISTS (SELECT FROM fence) AND b.queue = ANY ($5::integer[])
           AND b.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
           AND (SELECT held_at IS NULL FROM cluster) AS ours
      FROM places CROSS JOIN LATERAL (
        SELECT * FROM backlog
         WHERE parked AND job = places.job AND key = places.key AND not_before <= now()
         ORDER BY priority DESC, not_before LIMIT greatest(places.free, 0) FOR UPDATE SKIP LOCKED) b),
ready AS MATERIALIZED (
    SELECT next.*, row_number() OVER (PARTITION BY scope, key ORDER BY priority DESC, not_before, serial) AS nth
      FROM next WHERE ours ORDER BY priority DESC, not_before LIMIT $6::bigint),
free AS MATERIALIZED (                       -- its n-th free place, as in task/claim_keyed
    SELECT k.job, k.serial, k.scheduled_at, k.scope, k.key, (
        SELECT g FROM generate_series(0, k.key_limit - 1) AS g
         WHERE NOT EXISTS (
            SELECT FROM (SELECT job, lane, scheduled_at FROM key_places
                          WHERE scope = k.scope AND key = k.key AND place = g OFFSET 0) x
             CROSS JOIN LATERAL (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                                    AND r.scheduled_at = x.scheduled_at LIMIT 1) r)
         ORDER BY g OFFSET k.nth - 1 LIMIT 1) AS place
      FROM ready k WHERE k.key_limit IS NOT NULL AND k.nth <= k.key_limit),
seated AS (
    INSERT INTO key_places AS x (scope, key, place, job, lane, scheduled_at)
    SELECT scope, key, place, job, serial, scheduled_at FROM free WHERE place IS NOT NULL ORDER BY scope, key, place
    ON CONFLICT (scope, key, place) DO UPDATE
       SET job = excluded.job, lane = excluded.lane, scheduled_at = excluded.scheduled_at,
           taken_by = pg_current_xact_id()
     WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                          AND r.scheduled_at = x.scheduled_at OFFSET 0)
    RETURNING x.job, x.lane),
taken AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, attempt, crashes,
                           lost_alone, priority, once, key, payload)
    SELECT job, scheduled_at, greatest(token, $2::bigint << 22) + 1, $1::bigint, not_before, serial, queue, revision,
           serial, attempt, crashes, lost_alone, priority, once, key, payload
      FROM ready WHERE ((job, serial) IN (SELECT job, lane FROM seated)) IS TRUE ORDER BY job, serial
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, scheduled_at),
gone AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT lane FROM taken))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE),
unparked AS (
    UPDATE backlog b SET parked = false
     WHERE b.serial = ANY (ARRAY(SELECT serial FROM next))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM next)) IS TRUE
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS NOT TRUE)
SELECT n.job, n.serial AS lane, n.scheduled_at, n.serial, greatest(n.token, $2::bigint << 22) + 1 AS token, n.revision,
       n.attempt, n.crashes, n.once, false AS cancel, n.queue, coalesce(n.payload::text, '') AS payload, n.key,
       ((n.serial, n.scheduled_at, n.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE AS claimed
  FROM next n ORDER BY n.priority DESC, n.not_before
