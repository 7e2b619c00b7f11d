-- Jobs whose last tick has fired and run. $1 jobs
WITH c AS (UPDATE cursors SET ended = true WHERE job = ANY ($1::bigint[]) AND next_tick IS NULL RETURNING job)
UPDATE jobs j SET status = 'completed', updated_at = now() FROM c WHERE j.job = c.job
