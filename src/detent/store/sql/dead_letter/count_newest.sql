-- How many dead runs a tenant has that are not discarded, counted from the newest up to a limit. $1 tenant, $2 limit
SELECT count(*) AS runs FROM (
    SELECT FROM run_history h WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
       AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
     ORDER BY h.scheduled_at DESC LIMIT $2::integer) d
