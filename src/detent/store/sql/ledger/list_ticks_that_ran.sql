-- Ticks of a job that ran, or whose runs are not finished. $1 job, $2 from, $3 to, $4 the serial where manual runs
-- begin, $5 limit
SELECT DISTINCT scheduled_at FROM runs
 WHERE job = $1::bigint AND scheduled_at BETWEEN $2::timestamptz AND $3::timestamptz AND serial < $4::integer
   AND status NOT IN ('skipped', 'missed') ORDER BY scheduled_at LIMIT $5::integer
