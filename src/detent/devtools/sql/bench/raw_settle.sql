-- The row-writes of a settle and nothing else. $1 batch, $2 node. By an array, since a join is planned from end to end
-- of live_runs when a vacuum last saw that empty.
WITH d AS (
    DELETE FROM live_runs r
     WHERE r.job = ANY (ARRAY(SELECT job FROM bench_batches WHERE batch = $1::integer)) AND r.lane = 0
    RETURNING r.job, r.scheduled_at, r.token, r.serial, r.revision, r.attempt)
INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status)
SELECT job, scheduled_at, token, $2::bigint, now(), now(), serial, revision, attempt, 1 FROM d
