-- The ticks of a job that are still to be caught up. $1 job
SELECT catchup, job, partition, kind, schedule, since, until, next_tick, left_over, concurrent, descending, reprocess,
       created_at, created_by
  FROM catchups WHERE job = $1::bigint ORDER BY catchup
