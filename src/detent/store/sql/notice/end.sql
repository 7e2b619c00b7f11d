-- Mark notice $1 as sent ($3 NULL) or as failed for good ($3 its error). A success always counts, even if another node
-- has taken the notice since; a failure counts only if $2 is the latest attempt.
UPDATE notices SET ended_at = now(), error = $3::text
 WHERE notice = $1::bigint AND ended_at IS NULL AND ($3::text IS NULL OR tries = $2::integer)
