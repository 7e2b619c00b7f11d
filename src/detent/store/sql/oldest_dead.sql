-- Dead runs of a tenant that could live again now: of each job as many as it has free lanes, from its oldest on.
-- $1 tenant, $2 job or NULL, $3 group of errors or NULL, $4 dead by then or NULL, $5 limit. `remaining` tells of each how
-- many there are, with those that have to wait.
WITH dead AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, row_number() OVER (PARTITION BY h.job ORDER BY h.scheduled_at, h.serial) AS place
      FROM run_history h JOIN jobs j ON j.job = h.job AND j.tenant = $1::integer AND j.status <> 'deleted'
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND ($2::bigint IS NULL OR h.job = $2::bigint)
       AND ($4::timestamptz IS NULL OR h.finished_at <= $4::timestamptz)
       AND ($3::text IS NULL OR $3::text = dead_group(h))),
jobs_of_dead AS MATERIALIZED (
    SELECT c.job, greatest(c.lanes, 1) - (SELECT count(*) FROM live_runs r WHERE r.job = c.job AND r.lane >= 0) AS free
      FROM cursors c WHERE c.job IN (SELECT job FROM dead WHERE place = 1))
SELECT d.job, d.scheduled_at, d.serial, (SELECT count(*) FROM dead) AS remaining
  FROM dead d JOIN jobs_of_dead f USING (job) WHERE d.place <= greatest(f.free, 0)
 ORDER BY d.scheduled_at, d.job, d.serial LIMIT $5::integer
