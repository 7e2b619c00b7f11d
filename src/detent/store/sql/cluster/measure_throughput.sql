-- Runs that ended in the last seconds, found by the blocks that hold such times. The tick's day narrows it to the
-- partitions that are written to now; runs of older ticks are too few to matter for a rate.
SELECT count(*) FILTER (WHERE finished_at > now() - interval '10 seconds') AS last_10s, count(*) AS last_60s
  FROM run_history
 WHERE finished_at > now() - interval '60 seconds' AND scheduled_at > now() - interval '1 day'
   AND scheduled_at <= now() AND status <= 3
