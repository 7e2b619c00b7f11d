-- Room for jobs to come, their numbers, and the time, as one row. $1 tenant, $2 how many. Without
-- room `reservation` is NULL. Committed without waiting for the disk: the jobs' own commit, which follows, brings this one
-- to it too. A number that is not used leaves a gap, nothing else.
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
counted AS (
    UPDATE tenant_jobs c SET jobs = c.jobs + $2::integer FROM tenants t, quick
     WHERE c.tenant = $1::integer AND t.tenant = c.tenant AND $2::integer > 0
       AND (t.max_jobs IS NULL OR c.jobs + $2::integer <= t.max_jobs)
    RETURNING c.tenant),
made AS (INSERT INTO job_reservations (tenant, jobs) SELECT tenant, $2::integer FROM counted RETURNING reservation)
SELECT now() AS now, (SELECT reservation FROM made) AS reservation, t.max_payload_bytes, ARRAY(
    SELECT nextval((SELECT pg_get_serial_sequence('jobs', 'job')::regclass))
      FROM generate_series(1, $2::integer) WHERE EXISTS (SELECT FROM made)) AS numbers
  FROM tenants t WHERE t.tenant = $1::integer
