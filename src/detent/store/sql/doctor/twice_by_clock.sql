-- Active jobs that run twice when the clock is put back. $1 job or NULL
SELECT count(*) AS jobs, (array_agg(name ORDER BY job))[1:3] AS names FROM jobs
 WHERE status = 'active' AND definition ->> 'dst_overlap' = 'both' AND ($1::bigint IS NULL OR job = $1::bigint)
