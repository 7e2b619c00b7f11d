-- End a message: sent, or given up. $1 notice, $2 the attempt, $3 its error, NULL: it was sent. A sent message is ended
-- even if another node has taken it since; only the last attempt may give it up.
UPDATE notices SET ended_at = now(), error = $3::text
 WHERE notice = $1::bigint AND ended_at IS NULL AND ($3::text IS NULL OR tries = $2::integer)
