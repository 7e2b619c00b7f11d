-- Insert a manual run; the schedule does not move. $1 job, $2 the serial of such runs. Its time is now, or the first
-- millisecond after the job's last run of this kind, so that the time alone identifies it. It takes the highest free
-- lane of an ALLOW job, while fires take the lowest, so that they compete only for the last; QUEUE and REPLACE runs
-- wait if the job has another run. No free lane: skipped, and recorded in the ledger. Nothing returned: the job was
-- deleted meanwhile.
WITH numbered AS (
    UPDATE cursors SET serials = serials + 1
     WHERE job = $1::bigint AND EXISTS (SELECT FROM jobs j WHERE j.job = $1::bigint AND j.status <> 'deleted')
         RETURNING *),
placed AS MATERIALIZED (
    SELECT numbered.*, greatest(date_trunc('milliseconds', now()), (
        SELECT max(scheduled_at) + interval '1 millisecond' FROM runs
         WHERE job = $1::bigint AND scheduled_at >= date_trunc('milliseconds', now()) AND serial >= $2::integer)) AS at,
           CASE WHEN crowded AND lanes > 0 AND lanes <= (SELECT count(*) FROM live_runs r WHERE r.job = numbered.job
               AND r.lane >= 0) THEN NULL
        WHEN lanes = 1 THEN 0::smallint
        WHEN lanes < 0 THEN CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = numbered.job) THEN lanes
            ELSE 0::smallint END
        ELSE (SELECT g::smallint FROM generate_series(0, numbered.lanes - 1) g
         WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = numbered.job AND r.lane = g)
         ORDER BY g DESC LIMIT 1) END AS lane FROM numbered),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority, once)
    SELECT job, at, (SELECT incarnation FROM cluster) << 22 | 1, now(), $2::integer, queue, revision, lane, priority,
           once
      FROM placed WHERE lane IS NOT NULL
    ON CONFLICT (job, lane) DO NOTHING RETURNING lane),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, at, now(), $2::integer, revision, 4, 'overlap' FROM placed WHERE NOT EXISTS (SELECT FROM inserted))
SELECT job, at, $2::integer AS serial, queue, (SELECT lane FROM inserted) AS lane FROM placed
