-- As job/read_for_change, for several jobs by name. $1 tenant, $2 names, $3 limits of the caller or NULL
SELECT j.job, j.id, j.tenant, j.name, j.status, j.revision, j.definition, j.owner, j.created_at,
       coalesce(j.since, j.created_at) AS since, j.anchor, j.paused_until, coalesce(j.on_resume, 'skip') AS on_resume,
       c.generation, nullif(c.last_tick, '-infinity') AS last_tick, c.next_tick, c.runs_left, c.schedule, c.partition,
       c.max_missed, greatest(now(), j.since, j.created_at) AS now,
       (SELECT s.stored ->> 'zone_rules' FROM schedules s WHERE s.schedule = c.schedule) AS zone_rules,
       (SELECT s.stored ->> 'cron' FROM schedules s WHERE s.schedule = c.schedule) AS cron
  FROM unnest($2::text[]) AS v (name)
  JOIN jobs j ON j.tenant = $1::integer AND j.name = v.name AND j.status <> 'deleted'
  JOIN cursors c USING (job)
 WHERE $3::jsonb IS NULL OR within_limits(j.job, $3::jsonb)
