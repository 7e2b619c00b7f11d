-- As list_incidents, of those that are open: a statement of its own, so that its index is used whatever plan is kept.
SELECT incident, kind, within, tick, misses, opened_at, closed_at, closed, id, name, told_at, trouble, run
  FROM told_incidents
 WHERE tenant = $1::integer AND incident < coalesce($2::bigint, 9223372036854775807) AND closed_at IS NULL
 ORDER BY incident DESC LIMIT $3::bigint
