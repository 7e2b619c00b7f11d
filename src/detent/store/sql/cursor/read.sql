-- The cursors of some jobs as they are now: after a change was announced, a fire was refused or its reply lost. $1 jobs
SELECT job, next_tick, fire_at, generation, runs_left IS NOT NULL OR skips OR crowded
       OR key_limit IS NOT NULL OR key_rate IS NOT NULL AS bounded, queue, schedule,
       revision, grace, partition, priority, lanes, once, missed, max_missed
  FROM cursors WHERE job = ANY ($1::bigint[])
