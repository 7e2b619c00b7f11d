-- All columns from which a change of a job is computed; the change then compares generation and last_tick. The time of
-- a change is never earlier than that of the change before it, even if the clock stepped back.
-- $1 tenant, $2 id or NULL, $3 name or NULL, $4 limits of the caller or NULL
SELECT j.job, j.id, j.tenant, j.name, j.status, j.revision, j.definition, j.owner, j.created_at,
       coalesce(j.since, j.created_at) AS since, j.anchor, j.paused_until, coalesce(j.on_resume, 'skip') AS on_resume,
       c.generation, nullif(c.last_tick, '-infinity') AS last_tick, c.next_tick, c.runs_left, c.schedule, c.partition,
       c.max_missed, greatest(now(), j.since, j.created_at) AS now,
       (SELECT s.stored ->> 'zone_rules' FROM schedules s WHERE s.schedule = c.schedule) AS zone_rules,
       (SELECT s.stored ->> 'cron' FROM schedules s WHERE s.schedule = c.schedule) AS cron
  FROM jobs j JOIN cursors c USING (job)
 WHERE j.tenant = $1::integer AND j.status <> 'deleted' AND (j.id = $2::uuid OR $2::uuid IS NULL)
   AND (j.name = $3::text OR $3::text IS NULL) AND ($4::jsonb IS NULL OR within_limits(j.job, $4::jsonb))
