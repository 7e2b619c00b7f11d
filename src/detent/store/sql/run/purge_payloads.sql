-- Delete payloads of runs that are finished and no longer in history. $1 days, $2 limit. One probe into one partition
-- each; a join would scan all of history.
WITH old AS MATERIALIZED (
    SELECT job, scheduled_at FROM run_payloads p WHERE scheduled_at < now() - make_interval(days => $1::integer)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = p.job AND r.scheduled_at = p.scheduled_at)
       AND (SELECT true FROM run_history h WHERE h.job = p.job AND h.scheduled_at = p.scheduled_at LIMIT 1) IS NULL
     LIMIT $2::integer)
DELETE FROM run_payloads p USING old WHERE p.job = old.job AND p.scheduled_at = old.scheduled_at RETURNING p.job
