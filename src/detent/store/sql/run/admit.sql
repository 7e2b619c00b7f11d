-- Runs in lanes that wait for a place of their concurrency key (not_before is infinity) get one where it is free, and
-- are ready then: ticks of jobs with a key, and on-demand runs of such jobs. $1 jobs, with $2 the keys that their runs
-- have freed; $2 NULL: the keys that runs of these jobs wait for. All jobs that share a key are checked, by priority
-- and age. A place whose run no longer lives is free; a run that is repeated may find that it has a place already. The
-- rate of the key then gives it a time to start. Returns the runs that are ready now, or will be by their rate.
WITH asked AS (
    SELECT job, key FROM unnest($1::bigint[], $2::text[]) AS t (job, key) WHERE $2::text[] IS NOT NULL
    UNION
    SELECT job, key FROM live_runs
     WHERE $2::text[] IS NULL AND job = ANY ($1::bigint[]) AND not_before = 'infinity' AND owner IS NULL AND lane >= 0),
keys AS MATERIALIZED (
    SELECT DISTINCT CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE asked.job END AS scope, asked.key FROM asked
     CROSS JOIN LATERAL (SELECT key_shared FROM cursors WHERE job = asked.job LIMIT 1) c
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = asked.job LIMIT 1) j),
waiting AS MATERIALIZED (
    SELECT r.*, keys.scope, c.key_rate, CASE WHEN c.key_rate IS NULL THEN coalesce(c.key_limit, 1) ELSE c.key_limit END
           AS key_limit,
           EXISTS (SELECT FROM key_places x WHERE x.scope = keys.scope AND x.key = r.key AND x.job = r.job
                      AND x.lane = r.lane AND x.scheduled_at = r.scheduled_at OFFSET 0) AS seated
      FROM keys
     CROSS JOIN LATERAL (                    -- of one job, or of all: then c and j tell whether they share the key
        SELECT job, lane, scheduled_at, key, priority FROM live_runs
         WHERE key = keys.key AND job >= greatest(keys.scope, 0)
           AND job <= CASE WHEN keys.scope < 0 THEN 9223372036854775807 ELSE keys.scope END
           AND not_before = 'infinity' AND owner IS NULL AND lane >= 0
         ORDER BY priority DESC, scheduled_at, job, lane FOR UPDATE SKIP LOCKED) r
     CROSS JOIN LATERAL (SELECT key_limit, key_rate, key_shared FROM cursors WHERE job = r.job LIMIT 1) c
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = r.job LIMIT 1) j
     WHERE keys.scope = CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE r.job END),
numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY scope, key ORDER BY priority DESC, scheduled_at, job, lane) AS nth
      FROM waiting WHERE key_limit IS NOT NULL AND NOT seated),
free AS MATERIALIZED (                       -- its n-th free place, as in task/claim_keyed
    SELECT n.job, n.lane, n.scheduled_at, n.scope, n.key, (
        SELECT g FROM generate_series(0, n.key_limit - 1) AS g
         WHERE NOT EXISTS (
            SELECT FROM (SELECT job, lane, scheduled_at FROM key_places
                          WHERE scope = n.scope AND key = n.key AND place = g OFFSET 0) x
             CROSS JOIN LATERAL (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                                    AND r.scheduled_at = x.scheduled_at LIMIT 1) r)
         ORDER BY g OFFSET n.nth - 1 LIMIT 1) AS place
      FROM numbered n WHERE n.nth <= n.key_limit),
taken AS (
    INSERT INTO key_places AS x (scope, key, place, job, lane, scheduled_at)
    SELECT scope, key, place, job, lane, scheduled_at FROM free WHERE place IS NOT NULL ORDER BY scope, key, place
    ON CONFLICT (scope, key, place) DO UPDATE
       SET job = excluded.job, lane = excluded.lane, scheduled_at = excluded.scheduled_at,
           taken_by = pg_current_xact_id()
     WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                          AND r.scheduled_at = x.scheduled_at OFFSET 0)
    RETURNING x.job, x.lane),
admitted AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY scope, key ORDER BY priority DESC, scheduled_at, job, lane) AS nth,
           count(*) OVER (PARTITION BY scope, key) AS total
      FROM waiting
     WHERE key_limit IS NULL OR seated OR ((job, lane) IN (SELECT job, lane FROM taken)) IS TRUE),
rates AS (                                   -- as in task/claim_keyed
    INSERT INTO key_rates AS r (scope, key, next_at)
    SELECT scope, key, now() + make_interval(secs => max(total) / min(key_rate)) FROM admitted
     WHERE key_rate IS NOT NULL GROUP BY scope, key ORDER BY scope, key
    ON CONFLICT (scope, key) DO UPDATE SET next_at = greatest(r.next_at, now()) + (excluded.next_at - now())
    RETURNING r.scope, r.key, r.next_at),
timed AS MATERIALIZED (
    SELECT a.job, a.lane, greatest(now(), r.next_at - make_interval(secs => (a.total - a.nth + 1) / a.key_rate)) AS at
      FROM admitted a LEFT JOIN rates r ON r.scope = a.scope AND r.key = a.key)
UPDATE live_runs r SET not_before = timed.at FROM timed
 WHERE r.job = ANY (ARRAY(SELECT job FROM timed)) AND r.job = timed.job AND r.lane = timed.lane
RETURNING r.job, r.lane, r.queue
