-- The time from which history is complete: NULL as long as none of it was dropped
SELECT max(until) AS since FROM history_parts WHERE parent = 'run_history'
    AND (detached_at IS NOT NULL OR dropped_at IS NOT NULL)
