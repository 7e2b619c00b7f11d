-- How late runs started that were due at $1, and how many were skipped.
SELECT percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP (ORDER BY extract(epoch
  FROM started_at - scheduled_at)::float8 * 1000) AS lateness,
       count(*) FILTER (WHERE status = 4) AS skipped, count(*) FILTER (WHERE status = 1) AS succeeded
  FROM run_history WHERE scheduled_at = $1::timestamptz
