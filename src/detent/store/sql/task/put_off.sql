-- As run/put_off, for runs of tasks: they return to the backlog, so that live_runs stays small while a target is down.
-- $1..$7 as there. One that was cancelled meanwhile stays in live_runs, without an owner: its next worker ends it.
WITH locked AS MATERIALIZED (
    SELECT batch.*, r.* FROM (
        SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                             $7::interval[])
            AS t (job, lane, scheduled_at, serial, token, delay) ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT attempt, crashes, lost_alone, queue, revision, priority, once, cancel, key, payload FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r),
deleted AS (                                 -- by lane, as in run/settle of tasks
    DELETE FROM live_runs r WHERE r.lane >= 32768 AND r.lane = ANY (ARRAY(SELECT lane FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE NOT cancel)) IS TRUE RETURNING r.job, r.lane),
left_to_end AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1
     WHERE (SELECT bool_or(cancel) FROM locked)           -- rarely any: without one, no row is read
       AND r.lane >= 32768 AND r.lane = ANY (ARRAY(SELECT lane FROM locked WHERE cancel))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE cancel)) IS TRUE),
returned AS (
    INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, attempt, crashes,
                         lost_alone, once, keyed, key, payload)
    SELECT job, scheduled_at, now() + delay, token, serial, queue, revision, priority, attempt, crashes, lost_alone,
           once, key IS NOT NULL, key, payload
      FROM locked WHERE ((job, lane) IN (SELECT job, lane FROM deleted)) IS TRUE)
SELECT job, lane FROM locked
