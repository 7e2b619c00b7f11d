-- Delete unique keys whose run has ended and whose period has passed, one page at a time. $1 job and $2 key to begin
-- after, $3 how many are read. Returns how many were deleted and read, and the last key of the page. By probes, and by
-- the range of the page: a join with the backlog took minutes after a vacuum that saw one run. A key that was taken
-- again meanwhile has another serial. A dead run that can be continued keeps its row: any enqueue may take the key, and
-- if none did, the continued run has it again.
WITH page AS MATERIALIZED (
    SELECT job, key, serial, scheduled_at, until FROM unique_keys WHERE (job, key) > ($1::bigint, $2::text)
     ORDER BY job, key LIMIT $3::integer),
last AS MATERIALIZED (SELECT job, key FROM page ORDER BY job DESC, key DESC LIMIT 1),
over AS MATERIALIZED (
    SELECT job, key, serial FROM page k
     WHERE (until IS NULL OR until <= now())
       AND NOT EXISTS (
           SELECT FROM backlog b WHERE b.serial = k.serial AND b.scheduled_at = k.scheduled_at AND b.job = k.job
           OFFSET 0)
       AND NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.serial AND r.scheduled_at = k.scheduled_at
           OFFSET 0)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = k.job AND r.lane < 32768 AND r.serial = k.serial
                          AND r.scheduled_at = k.scheduled_at OFFSET 0)
       AND NOT EXISTS (SELECT FROM run_history h WHERE h.job = k.job AND h.scheduled_at = k.scheduled_at
                          AND h.serial = k.serial AND h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
                          OFFSET 0)),
gone AS (
    DELETE FROM unique_keys k
     WHERE (k.job, k.key) > ($1::bigint, $2::text)
       AND (k.job, k.key) <= ((SELECT job FROM last), (SELECT key FROM last))
       AND ((k.job, k.key, k.serial) IN (SELECT job, key, serial FROM over)) IS TRUE
    RETURNING k.job)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM page) AS read, job, key FROM last
