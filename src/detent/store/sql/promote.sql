-- Runs that wait for the one before them (QUEUE, REPLACE). $1 jobs, NULL: all; $2 limit. Run by whoever claims: a
-- predecessor may end in many ways, and not all of them think of those who wait.
-- What is to be replaced is asked to stop; where nobody has it, it ends here. Where nothing is in the way, the waiting run
-- takes lane 0: as a new row under that key, because an insert that finds it taken does nothing where an update would fail.
-- Returns the jobs with what happened: promoted, replaced (it was in nobody's hands), asked to stop.
WITH old AS MATERIALIZED (
    SELECT r.* FROM live_runs w JOIN live_runs r ON r.job = w.job AND r.lane = 0
     WHERE w.lane = -2 AND ($1::bigint[] IS NULL OR w.job = ANY ($1::bigint[])) AND (NOT r.cancel OR r.owner IS NULL)
     ORDER BY r.job FOR UPDATE OF r SKIP LOCKED),
ended AS (DELETE FROM live_runs r USING old o WHERE r.job = o.job AND r.lane = o.lane AND o.owner IS NULL),
h AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, 'replaced' FROM old WHERE owner IS NULL),
asked AS (UPDATE live_runs r SET cancel = true FROM old o WHERE r.job = o.job AND r.lane = o.lane AND o.owner IS NOT NULL),
waiting AS MATERIALIZED (
    SELECT w.* FROM live_runs w
     WHERE w.lane < 0 AND ($1::bigint[] IS NULL OR w.job = ANY ($1::bigint[]))
       AND NOT EXISTS (SELECT FROM live_runs o WHERE o.job = w.job AND o.lane = 0)
     ORDER BY w.job, w.lane LIMIT $2 FOR UPDATE SKIP LOCKED),
first AS MATERIALIZED (SELECT DISTINCT ON (job) * FROM waiting ORDER BY job, scheduled_at),
i AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, attempt, crashes, priority, once)
    SELECT job, scheduled_at, token, not_before, serial, queue, revision, 0, attempt, crashes, priority, once FROM first ORDER BY job
    ON CONFLICT (job, lane) DO NOTHING RETURNING job),
d AS (
    DELETE FROM live_runs r USING first f WHERE r.job = f.job AND r.lane = f.lane AND r.job IN (SELECT job FROM i))
SELECT job, 'promoted' AS what FROM i
UNION ALL SELECT job, CASE WHEN owner IS NULL THEN 'replaced' ELSE 'asked' END FROM old
