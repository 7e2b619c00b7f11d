-- Dead runs of a tenant that can be re-driven now, oldest first: of each job as many as it has free lanes, and all its
-- on-demand runs (serials from 201326592 on), which wait in the backlog. $1 tenant, $2 job or NULL, $3 group of errors
-- or NULL, $4 dead by then or NULL, $5 limit, $6 how many of the oldest are read, $7 limits of the caller or NULL.
WITH dead AS MATERIALIZED (                  -- in index order, read no further than necessary
    SELECT h.job, h.scheduled_at, h.serial FROM run_history h
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND ($2::bigint IS NULL OR h.job = $2::bigint)
       AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer AND j.status <> 'deleted' OFFSET 0)
       AND ($4::timestamptz IS NULL OR h.finished_at <= $4::timestamptz)
       AND ($7::jsonb IS NULL OR within_limits(h.job, $7::jsonb))
       AND ($3::text IS NULL OR $3::text = dead_group(h))
     ORDER BY h.scheduled_at, h.job, h.serial LIMIT $6::integer),
placed AS MATERIALIZED (
    SELECT d.*,
           row_number() OVER (PARTITION BY d.job, d.serial >= 201326592 ORDER BY d.scheduled_at, d.serial) AS place,
           CASE WHEN d.serial < 201326592 THEN (
               SELECT greatest(c.lanes, 1) - (SELECT count(*) FROM live_runs r WHERE r.job = d.job AND r.lane >= 0)
                 FROM cursors c WHERE c.job = d.job) END AS free
      FROM dead d)
SELECT job, scheduled_at, serial FROM placed
 WHERE place <= free OR serial >= 201326592 ORDER BY scheduled_at, job, serial LIMIT $5::integer
