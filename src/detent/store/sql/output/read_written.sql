-- The chunks of one attempt, with the lines of the last one only (part 32767), which is to be replaced. $1 job, $2
-- scheduled_at, $3 serial, $4 token
SELECT part, first, last, length(lines) AS size, CASE WHEN part = 32767 THEN lines END AS lines FROM run_logs
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer AND token = $4::bigint
 ORDER BY part
