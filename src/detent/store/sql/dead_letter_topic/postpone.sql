-- A dead run could not be forwarded: retry later. $1 letter, $2 the try, $3 the delay, $4 the error. Has no effect if
-- another node has taken it since.
UPDATE dead_letters SET due_at = now() + $3::interval, error = $4::text
 WHERE letter = $1::bigint AND tries = $2::integer
