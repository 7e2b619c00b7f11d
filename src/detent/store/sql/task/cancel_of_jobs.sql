-- Runs of these jobs that wait in the backlog end as cancelled, some at a time. $1 jobs, $2 the reason, $3 limit.
-- Repeat while as many are returned.
WITH locked AS MATERIALIZED (
    SELECT b.* FROM unnest($1::bigint[]) AS wanted (job) CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM backlog WHERE job = wanted.job AND NOT parked
             ORDER BY job, queue, keyed, priority, not_before LIMIT $3::integer FOR UPDATE SKIP LOCKED) ready
        UNION ALL
        SELECT * FROM (
            SELECT * FROM backlog WHERE job = wanted.job AND parked
             ORDER BY job, key, priority DESC, not_before LIMIT $3::integer FOR UPDATE SKIP LOCKED) parked) b
     LIMIT $3::integer),
deleted AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT serial FROM locked))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM locked)) IS TRUE
    RETURNING b.serial, b.scheduled_at, b.job),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason, key,
                             payload)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, $2::text, key, payload FROM locked
     WHERE ((serial, scheduled_at, job) IN (SELECT serial, scheduled_at, job FROM deleted)) IS TRUE
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING)
SELECT job, scheduled_at, serial FROM deleted
