-- As incident/list, of those that are open: a separate statement, so that a generic plan uses its index too.
SELECT incident, kind, within, tick, misses, opened_at, closed_at, closed, id, name, told_at, trouble, run
  FROM told_incidents
 WHERE tenant = $1::integer AND incident < coalesce($2::bigint, 9223372036854775807) AND closed_at IS NULL
   AND ($4::jsonb IS NULL OR within_limits((SELECT j.job FROM jobs j WHERE j.id = told_incidents.id), $4::jsonb))
 ORDER BY incident DESC LIMIT $3::bigint
