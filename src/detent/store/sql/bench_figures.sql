SELECT percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - scheduled_at)::float8 * 1000) AS lateness,
       count(*) FILTER (WHERE status = 4) AS skipped
  FROM run_history
