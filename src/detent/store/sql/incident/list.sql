-- Incidents of a tenant, newest first. $1 tenant, $2 only those before this one (NULL: from the newest), $3 limit, $4
-- limits of the caller or NULL
SELECT incident, kind, within, tick, misses, opened_at, closed_at, closed, id, name, told_at, trouble, run
  FROM told_incidents
 WHERE tenant = $1::integer AND incident < coalesce($2::bigint, 9223372036854775807)
   AND ($4::jsonb IS NULL OR within_limits((SELECT j.job FROM jobs j WHERE j.id = told_incidents.id), $4::jsonb))
 ORDER BY incident DESC LIMIT $3::bigint
