-- Incidents of a tenant from the newest on. $1 tenant, $2 only those before this one (NULL: from the newest), $3 limit, $4 only
-- those that are open, $5 only those of this job (NULL: of all)
SELECT i.incident, i.kind, i.within, i.tick, i.misses, i.opened_at, i.closed_at, i.closed, j.id, j.name,
       (SELECT min(n.ended_at) FROM notices n WHERE n.incident = i.incident AND n.event = 'missed' AND n.error IS NULL) AS told_at,
       (SELECT n.error FROM notices n WHERE n.incident = i.incident AND n.error IS NOT NULL ORDER BY n.notice DESC LIMIT 1) AS trouble
  FROM incidents i JOIN jobs j ON j.job = i.job
 WHERE i.tenant = $1::integer AND ($2::bigint IS NULL OR i.incident < $2::bigint) AND (NOT $4::boolean OR i.closed_at IS NULL)
   AND ($5::uuid IS NULL OR j.id = $5::uuid)
 ORDER BY i.incident DESC LIMIT $3::bigint
