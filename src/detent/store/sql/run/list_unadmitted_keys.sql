-- Keys that runs in lanes wait for: the guarantee behind run/admit. $1 key and $2 job to begin after, $3 limit
SELECT DISTINCT key, job FROM (
    SELECT key, job FROM live_runs WHERE not_before = 'infinity' AND (key, job) > ($1::text, $2::bigint)
     ORDER BY key, job LIMIT $3::integer) page
 ORDER BY key, job
