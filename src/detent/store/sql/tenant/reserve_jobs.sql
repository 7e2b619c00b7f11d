-- Reserve capacity for new jobs and return the reservation, their numbers and the time, as one row. $1 tenant, $2 how
-- many, $3 how many to reserve ahead for later ones, $4 how far below the quota reserving ahead is allowed. Without
-- capacity, for jobs or for storage, `reservation` is NULL. Capacity that was reserved ahead and that no other
-- registration holds is used first; the counter is locked only if there is none. Committed without waiting for the
-- disk: the commit of the jobs, which follows, flushes this one too. A number that is not used leaves a gap and has no
-- other effect.
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
ahead AS MATERIALIZED (
    SELECT r.reservation FROM quick, tenants t, tenant_jobs c, job_reservations r
     WHERE t.tenant = $1::integer AND c.tenant = t.tenant AND r.tenant = t.tenant AND $2::integer > 0
       AND (t.max_jobs IS NULL OR c.jobs <= t.max_jobs)         -- else the quota was lowered meanwhile
       AND (t.storage_bytes < t.max_storage_bytes) IS NOT false
       AND r.spare AND r.jobs > $2::integer
     ORDER BY r.reservation LIMIT 1 FOR UPDATE OF r SKIP LOCKED),
taken AS (
    UPDATE job_reservations r SET jobs = r.jobs - $2::integer FROM ahead
     WHERE r.reservation = ahead.reservation RETURNING r.tenant),
counter AS MATERIALIZED (
    SELECT c.tenant, c.jobs, t.max_jobs FROM quick, tenants t, tenant_jobs c
     WHERE t.tenant = $1::integer AND c.tenant = t.tenant AND $2::integer > 0 AND NOT EXISTS (SELECT FROM taken)
       AND (t.storage_bytes < t.max_storage_bytes) IS NOT false
       FOR NO KEY UPDATE OF c),
fitting AS MATERIALIZED (
    SELECT tenant, CASE WHEN max_jobs IS NULL OR jobs + $2::integer + $4::integer <= max_jobs THEN $3::integer
           ELSE 0 END AS more
      FROM counter WHERE max_jobs IS NULL OR jobs + $2::integer <= max_jobs),
counted AS (
    UPDATE tenant_jobs c SET jobs = c.jobs + $2::integer + fitting.more FROM fitting
     WHERE c.tenant = fitting.tenant RETURNING c.tenant, fitting.more),
made AS (
    INSERT INTO job_reservations (tenant, jobs, spare)
    SELECT tenant, $2::integer, false FROM taken
     UNION ALL SELECT tenant, $2::integer, false FROM counted
     UNION ALL SELECT tenant, more, true FROM counted WHERE more > 0
    RETURNING reservation, spare)
SELECT now() AS now, (SELECT reservation FROM made WHERE NOT spare) AS reservation, t.max_payload_bytes, ARRAY(
    SELECT nextval((SELECT pg_get_serial_sequence('jobs', 'job')::regclass))
      FROM generate_series(1, $2::integer) WHERE EXISTS (SELECT FROM made)) AS numbers
  FROM tenants t WHERE t.tenant = $1::integer
