-- Runs that are in two of the three tables for unfinished, waiting and finished runs, which every statement that moves
-- one makes impossible. $1 job or NULL, $2 how many waiting runs are checked: there may be a million.
SELECT (SELECT count(*) FROM live_runs r JOIN run_history h USING (job, scheduled_at, serial)
         WHERE $1::bigint IS NULL OR r.job = $1::bigint)
     + (SELECT count(*) FROM live_runs r
         WHERE ($1::bigint IS NULL OR r.job = $1::bigint) AND EXISTS (
               SELECT FROM backlog b WHERE b.serial = r.serial AND b.scheduled_at = r.scheduled_at AND b.job = r.job))
     + (SELECT count(*) FROM (SELECT job, scheduled_at, serial FROM backlog LIMIT $2::integer) b
         WHERE ($1::bigint IS NULL OR b.job = $1::bigint) AND EXISTS (
               SELECT FROM run_history h
                WHERE h.job = b.job AND h.scheduled_at = b.scheduled_at AND h.serial = b.serial))
       AS runs
