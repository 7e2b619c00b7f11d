-- As run/cancel, for on-demand runs that wait in the backlog: they end here. Arrays: $1 job, $2 scheduled_at, $3
-- serial. A run that is not returned is claimed, or is over. A claim that has locked the row is waited for, and then
-- the row is gone.
WITH locked AS MATERIALIZED (
    SELECT b.* FROM (SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[])
                         AS t (job, scheduled_at, serial) ORDER BY serial, scheduled_at, job) batch
     CROSS JOIN LATERAL (
        SELECT * FROM backlog WHERE serial = batch.serial AND scheduled_at = batch.scheduled_at AND job = batch.job
           FOR UPDATE) b),
deleted AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT serial FROM locked))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM locked)) IS TRUE
    RETURNING b.serial, b.scheduled_at, b.job),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason, key,
                             payload)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, 'cancelled', key, payload FROM locked
     WHERE ((serial, scheduled_at, job) IN (SELECT serial, scheduled_at, job FROM deleted)) IS TRUE
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING)
SELECT job, NULL::integer AS lane, scheduled_at, serial, NULL::bigint AS owner FROM deleted
