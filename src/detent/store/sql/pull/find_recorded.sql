-- What is recorded for a report that matched no lease: a row if the run is this tenant's. `outcome` is what was written
-- under this token; `status` is the final status, if the run ended under it. $1 tenant, $2 job, $3 scheduled_at, $4
-- serial, $5 token
SELECT r.status, r.token,
       coalesce((SELECT outcome FROM attempts a WHERE a.job = r.job AND a.scheduled_at = r.scheduled_at
                    AND a.serial = r.serial AND a.token = $5),
                CASE WHEN r.token = $5 AND r.finished_at IS NOT NULL THEN r.status END) AS outcome
  FROM runs r
 WHERE r.job = $2 AND r.scheduled_at = $3 AND r.serial = $4 AND EXISTS (SELECT FROM jobs WHERE job = $2 AND tenant = $1)
