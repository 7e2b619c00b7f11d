-- Take on-demand runs of tasks that are ready from the backlog into live_runs. $1 node whose runs they become, NULL:
-- they become pending runs, which any worker may claim (a release); $2 incarnation; where runs are ready, from
-- task/list_heads: $3 job, $4 queue, $5 priority; $6 limit, $7 as $5 in run/claim, $8 how many ready runs of a queue
-- and priority a release leaves in live_runs, $9 how many runs of each head: so one with many runs leaves capacity for
-- the others. A release takes from the heads in the order in which they are given. A run whose lane is taken stays
-- where it is.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
ranges AS MATERIALIZED (
    -- Checked again, because heads are remembered: a paused or deleted task starts nothing.
    SELECT t.* FROM unnest($3::bigint[], $4::integer[], $5::smallint[]) WITH ORDINALITY AS t (job, queue, priority, nth)
     CROSS JOIN LATERAL (SELECT status FROM jobs WHERE job = t.job LIMIT 1) j
     WHERE j.status = 'active' AND ($1::bigint IS NULL OR EXISTS (SELECT FROM fence))
       AND t.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues)) AND (SELECT held_at IS NULL FROM cluster)
     ORDER BY CASE WHEN $1::bigint IS NULL THEN t.nth END,
              CASE WHEN $7::boolean THEN 0 ELSE t.priority END DESC, random()),
picked AS MATERIALIZED (
    SELECT b.* FROM ranges CROSS JOIN LATERAL (
        SELECT * FROM backlog
         WHERE job = ranges.job AND queue = ranges.queue AND NOT keyed AND priority = ranges.priority AND NOT parked
           AND not_before <= now()
         ORDER BY not_before
         LIMIT CASE WHEN $1::bigint IS NOT NULL THEN $9::bigint ELSE least($9::bigint, $8::bigint - (
             SELECT count(*) FROM (
                 SELECT FROM live_runs WHERE queue = ranges.queue AND priority = ranges.priority AND owner IS NULL
                    AND lane >= 0 AND not_before <= now() LIMIT $8::bigint) AS ready)) END
           FOR UPDATE SKIP LOCKED) b LIMIT $6::bigint),
taken AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, attempt, crashes,
                           lost_alone, priority, once, key, payload)
    SELECT job, scheduled_at, greatest(token, $2::bigint << 22) + 1, $1::bigint, not_before, serial, queue, revision,
           serial, attempt, crashes, lost_alone, priority, once, key, payload
      FROM picked ORDER BY job, serial
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, scheduled_at),
gone AS (                                    -- one probe for each, whatever the statistics say
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT lane FROM taken))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE)
-- From `picked`, by a hash lookup in `taken`: a join of CTEs, each estimated at one row, would be a thousand times a
-- thousand comparisons.
SELECT p.job, p.serial AS lane, p.scheduled_at, p.serial, greatest(p.token, $2::bigint << 22) + 1 AS token, p.revision,
       p.attempt, p.crashes, p.once, false AS cancel, p.queue, coalesce(p.payload::text, '') AS payload,
       p.key
  FROM picked p WHERE ((p.serial, p.scheduled_at, p.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE
 ORDER BY CASE WHEN $7::boolean THEN 0 ELSE p.priority END DESC, p.not_before
