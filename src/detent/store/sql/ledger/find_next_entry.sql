-- The first tick after a range of missed ticks for which there is a run. $1 job, $2 the last tick of the range.
-- Status 5: missed.
SELECT scheduled_at FROM (
    SELECT scheduled_at FROM live_runs WHERE job = $1::bigint AND scheduled_at > $2::timestamptz AND serial = 0
    UNION ALL
    (SELECT scheduled_at FROM run_history
      WHERE job = $1::bigint AND scheduled_at > $2::timestamptz AND serial = 0 AND status <> 5
      ORDER BY scheduled_at LIMIT 1)) AS runs
 ORDER BY scheduled_at LIMIT 1
