-- Mark the unfinished runs when a limit is set. $1 tenant, $2 queue name, or NULL for all of the tenant's
UPDATE live_runs r SET limited = true FROM (
    SELECT job, lane FROM live_runs WHERE owner IS NOT NULL AND NOT limited AND queue IN (
        SELECT queue FROM queues WHERE tenant = $1::integer AND ($2::text IS NULL OR name = $2::text))
     ORDER BY job, lane FOR UPDATE) v
 WHERE r.job = v.job AND r.lane = v.lane
