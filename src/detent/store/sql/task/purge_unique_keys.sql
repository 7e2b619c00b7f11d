-- Delete unique keys whose run has ended and whose period has passed, one page at a time. $1 job and $2 key to begin
-- after, $3 how many are read. Returns how many were deleted and read, and the last key of the page.
WITH page AS MATERIALIZED (
    SELECT job, key, serial FROM unique_keys WHERE (job, key) > ($1::bigint, $2::text)
     ORDER BY job, key LIMIT $3::integer),
gone AS (
    DELETE FROM unique_keys k USING page
     WHERE k.job = page.job AND k.key = page.key AND k.serial = page.serial AND (k.until IS NULL OR k.until <= now())
       AND pg_visible_in_snapshot(k.taken_by, pg_current_snapshot())
       AND NOT EXISTS (
           SELECT FROM backlog b WHERE b.serial = k.serial AND b.scheduled_at = k.scheduled_at AND b.job = k.job)
       AND NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.serial AND r.scheduled_at = k.scheduled_at)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = k.job AND r.lane < 32768 AND r.serial = k.serial
                          AND r.scheduled_at = k.scheduled_at)
    RETURNING k.job)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM page) AS read, job, key FROM page
 ORDER BY job DESC, key DESC LIMIT 1
