-- Start runs that wait for their predecessor (QUEUE waits in lane -1, REPLACE in lane -2). $1 jobs, NULL: all; $2
-- limit. Every claim runs this: a predecessor may end in many ways, and not all of them promote its successor. A run
-- that is to be replaced is cancelled; if no worker has it, it ends here (status 3 is cancelled), and otherwise its
-- owner ends it with the reason `replaced`, unless an operator had cancelled it before. If no other run blocks it, the
-- waiting run takes lane 0: as a new row under that key, because an insert that finds the key taken does nothing where
-- an update would fail. A run in any lane blocks it: the job may have had more lanes before it was edited. A job that
-- has several lanes now takes a waiting run as soon as one of them is free. Returns the jobs with what happened:
-- promoted, promoted and now waiting for a place of its concurrency key (run/admit), replaced (no worker had it), asked
-- to stop.
WITH old AS MATERIALIZED (
    SELECT r.* FROM live_runs w JOIN cursors c ON c.job = w.job AND c.lanes <= 1
      JOIN live_runs r ON r.job = w.job AND r.lane >= 0
     WHERE w.lane = -2 AND ($1::bigint[] IS NULL OR w.job = ANY ($1::bigint[])) AND (NOT r.cancel OR r.owner IS NULL)
     ORDER BY r.job, r.lane FOR UPDATE OF r SKIP LOCKED),
ended AS (DELETE FROM live_runs r USING old o WHERE r.job = o.job AND r.lane = o.lane AND o.owner IS NULL),
-- If history has the row already, that row is kept: one such run must not stop all others.
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason,
                             key, payload)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3,
           CASE WHEN cancel AND replaced IS NULL THEN 'cancelled' ELSE 'replaced' END, key, payload
      FROM old WHERE owner IS NULL
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
asked AS (
    UPDATE live_runs r SET cancel = true, replaced = true
      FROM old o WHERE r.job = o.job AND r.lane = o.lane AND o.owner IS NOT NULL),
waiting AS MATERIALIZED (
    SELECT w.*, c.lanes FROM live_runs w JOIN cursors c ON c.job = w.job
     WHERE w.lane < 0 AND ($1::bigint[] IS NULL OR w.job = ANY ($1::bigint[]))
       AND greatest(c.lanes, 1) > (SELECT count(*) FROM live_runs o WHERE o.job = w.job AND o.lane >= 0)
     ORDER BY w.job, w.lane LIMIT $2 FOR UPDATE OF w SKIP LOCKED),
first AS MATERIALIZED (
    SELECT DISTINCT ON (job) *, CASE WHEN lanes <= 1 THEN 0 ELSE (
               SELECT g FROM generate_series(0, lanes - 1) g
                WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = waiting.job AND r.lane = g)
                ORDER BY g LIMIT 1) END AS place
      FROM waiting ORDER BY job, scheduled_at),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, attempt, crashes,
                           priority, once, key, payload)
    SELECT job, scheduled_at, token, not_before, serial, queue, revision, place, attempt, crashes, priority, once, key,
           payload
      FROM first ORDER BY job
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, not_before),
deleted AS (
    DELETE FROM live_runs r USING first f
     WHERE r.job = f.job AND r.lane = f.lane AND r.job IN (SELECT job FROM inserted))
SELECT job, CASE WHEN not_before = 'infinity' THEN 'keyed' ELSE 'promoted' END AS what FROM inserted
UNION ALL SELECT job, CASE WHEN owner IS NULL THEN 'replaced' ELSE 'asked' END FROM old
