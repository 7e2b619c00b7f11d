-- Delete former spans whose ticks are all older than the history that is kept, one page at a time. $1 days, $2 and $3
-- after this job and beginning, $4 how many are read, $5 the time as in history/list_expired. A span is kept as long as
-- anything is recorded in it, such as the late result of a backfill, or is still to be caught up.
WITH kept AS MATERIALIZED (
    SELECT least(max(until), least(now(), $5::timestamptz) - make_interval(days => $1::integer)) AS since
      FROM history_parts
     WHERE parent = 'run_history' AND dropped_at IS NOT NULL AND (SELECT held_at IS NULL FROM cluster)
    HAVING max(until) IS NOT NULL),
page AS MATERIALIZED (
    SELECT job, since, until FROM segments
     WHERE (job, since) > ($2::bigint, $3::timestamptz) ORDER BY job, since LIMIT $4::integer),
last AS (SELECT job, since FROM page ORDER BY job DESC, since DESC LIMIT 1),
gone AS (
    DELETE FROM segments s USING page p, kept k
     WHERE s.job = p.job AND s.since = p.since AND p.until < k.since
       AND NOT EXISTS (SELECT FROM catchups c WHERE c.job = p.job AND c.since <= p.until AND c.until > p.since)
       AND (SELECT true FROM run_history h WHERE h.job = p.job AND h.scheduled_at > p.since
           AND h.scheduled_at <= p.until LIMIT 1) IS NULL
    RETURNING s.job)
SELECT (SELECT job FROM last) AS job, (SELECT since FROM last) AS since, (SELECT count(*) FROM gone) AS gone
