-- Payloads of runs that are over and no longer in history. $1 limit
WITH old AS MATERIALIZED (
    SELECT job, scheduled_at FROM run_payloads p WHERE scheduled_at < (SELECT min(since) FROM history_bounds)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = p.job AND r.scheduled_at = p.scheduled_at)
     LIMIT $1::integer)
DELETE FROM run_payloads p USING old WHERE p.job = old.job AND p.scheduled_at = old.scheduled_at RETURNING p.job
