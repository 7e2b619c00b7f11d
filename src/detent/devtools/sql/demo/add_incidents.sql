-- Incidents of the default tenant, with messages that arrived. Those that are open are known to what is expected, which
-- ends them. Arrays: $1 job, $2 kind, $3 within, $4 tick, $5 misses, $6 opened_at, $7 closed_at
WITH i AS (
    INSERT INTO incidents (tenant, job, kind, within, tick, misses, opened_at, closed_at, closed)
    SELECT 1, v.job, v.kind, v.within, v.tick, v.misses, v.opened_at, v.closed_at, CASE WHEN v.closed_at IS NOT NULL
           THEN 'recovered' END
      FROM unnest($1::bigint[], $2::text[], $3::interval[], $4::timestamptz[], $5::integer[], $6::timestamptz[],
          $7::timestamptz[])
           AS v (job, kind, within, tick, misses, opened_at, closed_at)
     ORDER BY v.opened_at
    RETURNING *),
n AS (
    INSERT INTO notices (incident, event, made_at, due_at, tries, ended_at)
    SELECT incident, 'missed', opened_at, opened_at, 1, opened_at + interval '1 second' FROM i
    UNION ALL
    SELECT incident, 'recovered', closed_at, closed_at, 1, closed_at + interval '1 second' FROM i
     WHERE closed_at IS NOT NULL)
UPDATE expectations e SET incident = i.incident, misses = i.misses, missed_tick = i.tick, check_at = now()
  FROM i WHERE i.closed_at IS NULL AND e.job = i.job AND e.kind = i.kind
