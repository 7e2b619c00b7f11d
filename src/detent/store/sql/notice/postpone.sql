-- A message could not be sent: retry later. $1 notice, $2 the attempt, $3 the delay, $4 the error. Has no effect if
-- another node has taken the message since.
UPDATE notices SET due_at = now() + $3::interval, error = $4::text
 WHERE notice = $1::bigint AND tries = $2::integer AND ended_at IS NULL
