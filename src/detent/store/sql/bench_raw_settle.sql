-- The row-writes of a settle and nothing else. $1 batch, $2 node
WITH d AS (
    DELETE FROM live_runs r USING bench_batches b WHERE b.batch = $1::integer AND r.job = b.job AND r.lane = 0
    RETURNING r.job, r.scheduled_at, r.token, r.serial, r.revision, r.attempt)
INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status)
SELECT job, scheduled_at, token, $2::bigint, now(), now(), serial, revision, attempt, 1 FROM d
