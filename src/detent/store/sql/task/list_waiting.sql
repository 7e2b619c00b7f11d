-- On-demand runs that wait, newest first, after a key. $1 jobs or NULL, $2 scheduled_at, $3 job and $4 serial of the
-- key, $5 statuses or NULL, $6 limit, $7 tenant, $8 limits of the caller or NULL, $9 only those after this time, $10
-- how many runs of a queue and priority are read at most. No index has all runs of a job by their time. Those that may
-- start when they are due (fresh) are found by queue and priority; the others by backlog_moved. A million may wait, so
-- the list may be complete only down to `complete_from`, and then the next page continues there. Of runs with equal
-- times all are read. The first row has no run.
WITH RECURSIVE ready_jobs AS (               -- only if all jobs of a tenant are wanted, from one to the next
    (SELECT job FROM backlog WHERE NOT parked AND $1::bigint[] IS NULL ORDER BY job LIMIT 1)
    UNION ALL
    SELECT next.job FROM ready_jobs CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE NOT parked AND job > ready_jobs.job ORDER BY job LIMIT 1) next),
moved_jobs AS (
    (SELECT job FROM backlog WHERE (parked OR not_before <> scheduled_at) AND $1::bigint[] IS NULL ORDER BY job LIMIT 1)
    UNION ALL
    SELECT next.job FROM moved_jobs CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE (parked OR not_before <> scheduled_at) AND job > moved_jobs.job
         ORDER BY job LIMIT 1) next),
wanted AS MATERIALIZED (
    SELECT found.job FROM (
        SELECT job FROM unnest($1::bigint[]) AS job
        UNION SELECT job FROM ready_jobs UNION SELECT job FROM moved_jobs) found
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = found.job LIMIT 1) j
     WHERE j.tenant = $7::integer AND ($8::jsonb IS NULL OR within_limits(found.job, $8::jsonb))),
heads AS (
    SELECT h.* FROM wanted CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority FROM backlog
         WHERE job = wanted.job AND NOT parked AND ($5::text[] IS NULL OR 'pending' = ANY ($5::text[]))
         ORDER BY queue, keyed, priority LIMIT 1) h
    UNION ALL
    SELECT next.* FROM heads CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority FROM backlog
         WHERE job = heads.job AND NOT parked
           AND (queue, keyed, priority) > (heads.queue, heads.keyed, heads.priority)
         ORDER BY queue, keyed, priority LIMIT 1) next),
newest AS MATERIALIZED (                     -- the heads that the page can have runs of
    SELECT heads.*, n.not_before AS newest FROM heads CROSS JOIN LATERAL (
        SELECT not_before FROM backlog
         WHERE job = heads.job AND queue = heads.queue AND keyed = heads.keyed AND priority = heads.priority
           AND NOT parked AND not_before <= $2::timestamptz AND not_before > $9::timestamptz
         ORDER BY not_before DESC LIMIT 1) n
     ORDER BY n.not_before DESC FETCH FIRST ($6::bigint) ROWS WITH TIES),
examined AS MATERIALIZED (
    SELECT b.* FROM newest CROSS JOIN LATERAL (
        SELECT job, scheduled_at, serial, attempt, crashes, parked, token, revision, queue, keyed, priority, not_before
          FROM backlog
         WHERE job = newest.job AND queue = newest.queue AND keyed = newest.keyed AND priority = newest.priority
           AND NOT parked AND not_before <= $2::timestamptz AND not_before > $9::timestamptz
         ORDER BY not_before DESC FETCH FIRST ($10::bigint) ROWS WITH TIES) b),
bounds AS (
    SELECT min(not_before) AS at FROM examined GROUP BY job, queue, keyed, priority HAVING count(*) >= $10::bigint
    UNION ALL
    SELECT min(newest) FROM newest HAVING count(*) >= $6::bigint),
page AS (
    SELECT * FROM (
        SELECT job, scheduled_at, serial, attempt, crashes, parked, token, revision FROM examined
         WHERE not_before = scheduled_at
        UNION ALL
        SELECT m.* FROM wanted CROSS JOIN LATERAL (
            SELECT job, scheduled_at, serial, attempt, crashes, parked, token, revision FROM backlog
             WHERE job = wanted.job AND (parked OR not_before <> scheduled_at)
               AND scheduled_at <= $2::timestamptz AND scheduled_at > $9::timestamptz
               AND (scheduled_at, job, serial) < ($2::timestamptz, $3::bigint, $4::integer)
               AND ($5::text[] IS NULL
                    OR CASE WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END = ANY ($5::text[]))
             ORDER BY scheduled_at DESC, serial DESC LIMIT $6::bigint) m) found
     WHERE (scheduled_at, job, serial) < ($2::timestamptz, $3::bigint, $4::integer)
     ORDER BY scheduled_at DESC, job DESC, serial DESC LIMIT $6::bigint)
SELECT NULL::bigint AS job, NULL::timestamptz AS scheduled_at, NULL::integer AS serial, NULL::text AS status,
       NULL::text AS reason, NULL::smallint AS attempt, NULL::bigint AS token, NULL::bigint AS node,
       NULL::integer AS revision, NULL::timestamptz AS started_at, NULL::timestamptz AS finished_at,
       NULL::text AS result, NULL::integer AS ticks, NULL::timestamptz AS until,
       (SELECT max(at) FROM bounds) AS complete_from
UNION ALL
SELECT job, scheduled_at, serial, CASE WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END,
       CASE WHEN parked THEN 'waiting for its concurrency key' END, attempt, token, NULL, revision, NULL, NULL, NULL,
       NULL, NULL, NULL
  FROM page
