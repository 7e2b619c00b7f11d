-- A message could not be sent: again after a while. $1 notice, $2 the try, $3 the while, $4 what the try met. Whoever
-- was slow so that another took it has no say any more.
UPDATE notices SET due_at = now() + $3::interval, error = $4::text
 WHERE notice = $1::bigint AND tries = $2::integer AND ended_at IS NULL
