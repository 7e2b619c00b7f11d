-- Jobs whose next ticks were computed with an older release of the zone data, with the columns of job/read_for_change.
-- $1 the release, $2 after this number, $3 limit. A paused job gets its next tick when it is resumed, by the zone data
-- of that day.
SELECT j.job, j.id, j.tenant, j.name, j.status, j.revision, j.definition, j.owner, j.created_at,
       coalesce(j.since, j.created_at) AS since, j.anchor, j.paused_until, coalesce(j.on_resume, 'skip') AS on_resume,
       c.generation, nullif(c.last_tick, '-infinity') AS last_tick, c.next_tick, c.runs_left, c.schedule, c.partition,
       c.max_missed, greatest(now(), j.since, j.created_at) AS now,
       (SELECT s.stored ->> 'zone_rules' FROM schedules s WHERE s.schedule = c.schedule) AS zone_rules,
       (SELECT s.stored ->> 'cron' FROM schedules s WHERE s.schedule = c.schedule) AS cron
  FROM jobs j JOIN cursors c USING (job)
 WHERE j.job > $2::bigint AND j.tzdata < $1::text COLLATE "C" AND j.status = 'active' AND c.next_tick IS NOT NULL
 ORDER BY j.job LIMIT $3::integer
