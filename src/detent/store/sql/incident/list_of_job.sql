-- As incident/list, of one job. $4 only those that are open, $5 job, $6 limits of the caller or NULL
SELECT incident, kind, within, tick, misses, opened_at, closed_at, closed, id, name, told_at, trouble, run
  FROM told_incidents
 WHERE tenant = $1::integer AND incident < coalesce($2::bigint, 9223372036854775807)
   AND id = $5::uuid AND (NOT $4::boolean OR closed_at IS NULL)
   AND ($6::jsonb IS NULL OR within_limits((SELECT j.job FROM jobs j WHERE j.id = told_incidents.id), $6::jsonb))
 ORDER BY incident DESC LIMIT $3::bigint
