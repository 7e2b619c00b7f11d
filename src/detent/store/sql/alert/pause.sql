-- Nothing is to be said about an alert until then. $1 alert, $2 when (NULL: something happens), $3 whether all its jobs
-- have recovered
UPDATE alerts SET flush_at = coalesce($2::timestamptz, 'infinity'), calm = $3::boolean WHERE alert = $1::bigint
