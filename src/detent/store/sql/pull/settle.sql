-- Settle pulled runs: with a final status, or with another attempt. $1 tenant; arrays: $2 job, $3 scheduled_at, $4
-- serial, $5 token, $6 final status (NULL: retry), $7 reason, $8 result, $9 outcome and $10 error of the attempt, $11
-- wait before the next attempt, $12 traceback. A run that was asked to stop meanwhile is not retried. Returns what was
-- written: position, counted from 1, and final status, with the lane and the concurrency key that it frees;
-- pull/find_recorded then distinguishes a repeated report from one that came too late.
WITH batch AS MATERIALIZED (
    SELECT DISTINCT ON (job, scheduled_at, serial, token) *
      FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[], $6::smallint[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::interval[], $12::text[]) WITH ORDINALITY
           AS t (job, scheduled_at, serial, token, status, reason, result, outcome, error, delay, traceback, position)
     ORDER BY job, scheduled_at, serial, token, position),
leases AS MATERIALIZED (
    SELECT batch.*, l.lane, l.worker, l.claimed_at FROM batch CROSS JOIN LATERAL (
        SELECT lane, worker, claimed_at FROM pull_leases
         WHERE job = batch.job AND scheduled_at = batch.scheduled_at AND serial = batch.serial AND token = batch.token
           AND tenant = $1
           FOR UPDATE) l),
ended AS MATERIALIZED (
    SELECT leases.*, r.attempt, r.revision, r.crashes, r.lost_alone, r.queue, r.priority, r.once, r.key, r.payload,
           CASE WHEN r.cancel AND leases.status IS DISTINCT FROM 1 THEN 3 ELSE leases.status END AS final,
           CASE WHEN NOT r.cancel OR leases.status IS NOT DISTINCT FROM 1 THEN leases.reason
                WHEN r.replaced THEN 'replaced' ELSE 'cancelled' END AS why
      FROM (SELECT * FROM leases ORDER BY job, lane) leases CROSS JOIN LATERAL (
        SELECT attempt, revision, crashes, lost_alone, queue, priority, once, cancel, replaced, key, payload
          FROM live_runs
         WHERE job = leases.job AND lane = leases.lane AND scheduled_at = leases.scheduled_at AND serial = leases.serial
           AND token = leases.token
           AND owner = -leases.worker FOR UPDATE) r),
released AS (
    DELETE FROM pull_leases l USING leases
     WHERE l.job = ANY (ARRAY(SELECT job FROM leases)) AND l.job = leases.job AND l.scheduled_at = leases.scheduled_at
       AND l.serial = leases.serial),
deleted AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM ended))
        AND ((r.job, r.lane) IN (SELECT job, lane FROM ended WHERE final IS NOT NULL OR lane >= 32768)) IS TRUE),
retried AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, attempt = r.attempt + 1, not_before = now() + ended.delay
      FROM ended WHERE r.job = ANY (ARRAY(SELECT job FROM ended)) AND r.job = ended.job AND r.lane = ended.lane
       AND ended.final IS NULL AND ended.lane < 32768),
returned AS (                                -- a run of a task that is retried returns to the backlog
    INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, attempt, crashes,
                         lost_alone, once, keyed, wakes, key, payload)
    SELECT job, scheduled_at, now() + delay, token, serial, queue, revision, priority, attempt + 1, crashes, lost_alone,
           once, key IS NOT NULL, true, key, payload FROM ended WHERE final IS NULL AND lane >= 32768),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
        reason, result, key, payload)
    SELECT job, scheduled_at, token, -worker, claimed_at, clock_timestamp(), serial, revision, attempt, final, why,
           result, key, payload
      FROM ended WHERE final IS NOT NULL),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error,
                          traceback)
    SELECT job, scheduled_at, serial, token, -worker, claimed_at, clock_timestamp(), attempt, outcome, error, traceback
      FROM ended WHERE final IS DISTINCT FROM 1 OR attempt > 1)
SELECT position, final, job, lane, key FROM ended
