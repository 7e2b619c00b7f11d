-- Arrays: $1 job, $2 scheduled_at, $3 serial. Runs without an owner end here; the others are asked to stop and their
-- owner settles them.
-- Only the row says in which lane a run is. So the lanes are found first, without locks, and then the rows are locked
-- in the order of their keys, as by all statements that lock several. A lane may have another run by then: the lock
-- names the run, too.
WITH found AS MATERIALIZED (
    SELECT t.*, r.lane FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) AS t (job, scheduled_at, serial)
     CROSS JOIN LATERAL (
        -- By the two kinds of lanes: of a run of a task it is the serial. By its job alone, a thousand runs of one task
        -- would be a thousand times a thousand rows.
        SELECT lane FROM live_runs
         WHERE job = t.job AND lane < 32768 AND scheduled_at = t.scheduled_at AND serial = t.serial
        UNION ALL
        SELECT lane FROM live_runs
         WHERE job = t.job AND lane = t.serial AND lane >= 32768 AND scheduled_at = t.scheduled_at
           AND serial = t.serial) r),
locked AS MATERIALIZED (
    SELECT r.* FROM (SELECT * FROM found ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT * FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at AND serial = batch.serial
           FOR UPDATE) r),
deleted AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
        AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE owner IS NULL)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason,
                             key, payload)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, 'cancelled', key, payload
      FROM locked WHERE owner IS NULL
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),     -- as in rescue
flagged AS (
    UPDATE live_runs r SET cancel = true
     WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM locked
      WHERE owner IS NOT NULL)) IS TRUE)
SELECT job, lane, scheduled_at, serial, owner FROM locked
