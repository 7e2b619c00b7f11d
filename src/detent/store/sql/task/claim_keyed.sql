-- As task/claim, for runs with concurrency keys; parameters as there. First the rate of its key gives a run a time to
-- start, once: a time to come is its new not_before. Then a place of its key is taken with the run. Where no place is
-- free, the run is parked, out of the index of what is ready, so that a million runs of one key are read once each.
-- Where runs of a job and queue were put off in either way, one of them is returned too: `claimed` tells it apart.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
ranges AS MATERIALIZED (
    SELECT t.*, CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE t.job END AS scope, c.key_rate,
           -- A key without a limit and without a rate means one at a time.
           CASE WHEN c.key_rate IS NULL THEN coalesce(c.key_limit, 1) ELSE c.key_limit END AS key_limit
      FROM unnest($3::bigint[], $4::integer[], $5::smallint[]) WITH ORDINALITY AS t (job, queue, priority, nth)
     CROSS JOIN LATERAL (SELECT status, tenant FROM jobs WHERE job = t.job LIMIT 1) j
     CROSS JOIN LATERAL (SELECT key_limit, key_rate, key_shared FROM cursors WHERE job = t.job LIMIT 1) c
     WHERE j.status = 'active' AND ($1::bigint IS NULL OR EXISTS (SELECT FROM fence))
       AND t.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues)) AND (SELECT held_at IS NULL FROM cluster)
     ORDER BY CASE WHEN $1::bigint IS NULL THEN t.nth END,
              CASE WHEN $7::boolean THEN 0 ELSE t.priority END DESC, random()),
picked AS MATERIALIZED (
    SELECT b.*, ranges.scope, ranges.key_limit, ranges.key_rate FROM ranges CROSS JOIN LATERAL (
        SELECT * FROM backlog
         WHERE job = ranges.job AND queue = ranges.queue AND keyed AND priority = ranges.priority AND NOT parked
           AND not_before <= now()
         ORDER BY not_before
         LIMIT CASE WHEN $1::bigint IS NOT NULL THEN $9::bigint ELSE least($9::bigint, $8::bigint - (
             SELECT count(*) FROM (
                 SELECT FROM live_runs WHERE queue = ranges.queue AND priority = ranges.priority AND owner IS NULL
                    AND lane >= 0 AND not_before <= now() LIMIT $8::bigint) AS ready)) END
           FOR UPDATE SKIP LOCKED) b LIMIT $6::bigint),
paced AS MATERIALIZED (                      -- those that the rate of their key has to give a time
    SELECT job, serial, scheduled_at, scope, key, key_rate,
           row_number() OVER (PARTITION BY scope, key ORDER BY priority DESC, not_before, serial) AS nth,
           count(*) OVER (PARTITION BY scope, key) AS total
      FROM picked WHERE key_rate IS NOT NULL AND NOT paced),
rates AS (                                   -- next_at moves on by one step for each; the row lock orders two claims
    INSERT INTO key_rates AS r (scope, key, next_at)
    SELECT scope, key, now() + make_interval(secs => max(total) / min(key_rate)) FROM paced GROUP BY scope, key
     ORDER BY scope, key
    ON CONFLICT (scope, key) DO UPDATE SET next_at = greatest(r.next_at, now()) + (excluded.next_at - now())
    RETURNING r.scope, r.key, r.next_at),
timed AS MATERIALIZED (
    SELECT p.job, p.serial, p.scheduled_at, r.next_at - make_interval(secs => (p.total - p.nth + 1) / p.key_rate) AS at
      FROM paced p JOIN rates r ON r.scope = p.scope AND r.key = p.key),
ready AS MATERIALIZED (
    SELECT * FROM picked p
     WHERE ((p.job, p.serial) IN (SELECT job, serial FROM timed WHERE at > now())) IS NOT TRUE),
keyed AS MATERIALIZED (
    SELECT job, serial, scheduled_at, scope, key, key_limit,
           row_number() OVER (PARTITION BY scope, key ORDER BY priority DESC, not_before, serial) AS nth
      FROM ready WHERE key_limit IS NOT NULL),
free AS MATERIALIZED (                       -- its n-th free place: one whose run no longer lives is free
    SELECT k.job, k.serial, k.scheduled_at, k.scope, k.key, (
        SELECT g FROM generate_series(0, k.key_limit - 1) AS g
         WHERE NOT EXISTS (
            SELECT FROM (SELECT job, lane, scheduled_at FROM key_places
                          WHERE scope = k.scope AND key = k.key AND place = g OFFSET 0) x
             CROSS JOIN LATERAL (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                                    AND r.scheduled_at = x.scheduled_at LIMIT 1) r)
         ORDER BY g OFFSET k.nth - 1 LIMIT 1) AS place
      FROM keyed k WHERE k.nth <= k.key_limit),
seated AS (                                  -- the second of two claims waits, and then cannot see the run of the first
    INSERT INTO key_places AS x (scope, key, place, job, lane, scheduled_at)
    SELECT scope, key, place, job, serial, scheduled_at FROM free WHERE place IS NOT NULL ORDER BY scope, key, place
    ON CONFLICT (scope, key, place) DO UPDATE
       SET job = excluded.job, lane = excluded.lane, scheduled_at = excluded.scheduled_at,
           taken_by = pg_current_xact_id()
     WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = x.job AND r.lane = x.lane
                          AND r.scheduled_at = x.scheduled_at OFFSET 0)
    RETURNING x.job, x.lane),
parked AS MATERIALIZED (
    SELECT job, serial FROM keyed WHERE ((job, serial) IN (SELECT job, lane FROM seated)) IS NOT TRUE),
taken AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, attempt, crashes,
                           lost_alone, priority, once, key, payload)
    SELECT job, scheduled_at, greatest(token, $2::bigint << 22) + 1, $1::bigint, not_before, serial, queue, revision,
           serial, attempt, crashes, lost_alone, priority, once, key, payload
      FROM ready WHERE ((job, serial) IN (SELECT job, serial FROM parked)) IS NOT TRUE ORDER BY job, serial
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, scheduled_at),
gone AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT lane FROM taken))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE),
delayed AS (
    UPDATE backlog b SET paced = true, parked = ((b.job, b.serial) IN (SELECT job, serial FROM parked)) IS TRUE,
           not_before = coalesce((SELECT greatest(timed.at, b.not_before) FROM timed
                                   WHERE timed.job = b.job AND timed.serial = b.serial), b.not_before)
     WHERE b.serial = ANY (ARRAY(SELECT serial FROM parked UNION ALL SELECT serial FROM timed WHERE at > now()))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM picked)) IS TRUE
       AND ((b.job, b.serial) IN (SELECT job, serial FROM parked
                                  UNION ALL SELECT job, serial FROM timed WHERE at > now())) IS TRUE)
(SELECT p.job, p.serial AS lane, p.scheduled_at, p.serial, greatest(p.token, $2::bigint << 22) + 1 AS token, p.revision,
        p.attempt, p.crashes, p.once, false AS cancel, p.queue, coalesce(p.payload::text, '') AS payload, p.key,
        true AS claimed
   FROM picked p WHERE ((p.serial, p.scheduled_at, p.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE
  ORDER BY CASE WHEN $7::boolean THEN 0 ELSE p.priority END DESC, p.not_before)
UNION ALL
(SELECT DISTINCT ON (p.job, p.queue) p.job, p.serial, p.scheduled_at, p.serial, p.token, p.revision, p.attempt,
        p.crashes, p.once, false, p.queue, '', p.key, false
   FROM picked p WHERE ((p.serial, p.scheduled_at, p.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS NOT TRUE)
