-- The occurrences of a job that are skipped. $1 job
SELECT tick, reason, created_at, created_by FROM skips WHERE job = $1::bigint ORDER BY tick
