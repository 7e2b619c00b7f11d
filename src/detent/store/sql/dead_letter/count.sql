-- How many dead runs of a tenant dead_letter/list_oldest chooses from. $1 tenant, $2 job or NULL, $3 group or NULL, $4
-- dead by then or NULL, $5 limits of the caller or NULL
SELECT count(*) AS runs
  FROM run_history h JOIN jobs j ON j.job = h.job AND j.tenant = $1::integer AND j.status <> 'deleted'
 WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND ($2::bigint IS NULL OR h.job = $2::bigint)
   AND ($4::timestamptz IS NULL OR h.finished_at <= $4::timestamptz)
   AND ($5::jsonb IS NULL OR within_limits(h.job, $5::jsonb))
   AND ($3::text IS NULL OR $3::text = dead_group(h))
