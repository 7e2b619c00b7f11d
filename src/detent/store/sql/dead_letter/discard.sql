-- Discard dead runs: they stay dead and are no longer listed. $1 tenant; those of arrays: $2 job, $3 scheduled_at, $4
-- serial; or, if these are NULL: $5 job or NULL, $6 group of errors or NULL, $7 dead by then or NULL; $8 limit, $9
-- limits of the caller or NULL. Locked in the order of the key.
WITH chosen AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial FROM run_history h
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
       AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
       AND ($2::bigint[] IS NULL OR (h.job, h.scheduled_at, h.serial) IN (
            SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[])))
       AND ($5::bigint IS NULL OR h.job = $5::bigint)
       AND ($7::timestamptz IS NULL OR h.finished_at <= $7::timestamptz)
       AND ($9::jsonb IS NULL OR within_limits(h.job, $9::jsonb))
       AND ($6::text IS NULL OR $6::text = dead_group(h))
     ORDER BY h.job, h.scheduled_at, h.serial LIMIT $8::integer FOR UPDATE OF h)
UPDATE run_history h SET reason = 'discarded' FROM chosen c
 WHERE h.job = c.job AND h.scheduled_at = c.scheduled_at AND h.serial = c.serial
RETURNING h.job, h.scheduled_at, h.serial
