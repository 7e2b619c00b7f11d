-- Incidents of a tenant, newest first. $1 tenant, $2 only those before this one (NULL: from the newest), $3 limit
SELECT incident, kind, within, tick, misses, opened_at, closed_at, closed, id, name, told_at, trouble, run
  FROM told_incidents
 WHERE tenant = $1::integer AND incident < coalesce($2::bigint, 9223372036854775807)
 ORDER BY incident DESC LIMIT $3::bigint
