-- End a run whose result cannot be stored in any form: the live row is deleted, so that its lane is free. If history
-- has a run of this key already, that row is kept; otherwise the run is recorded as dead. $1 node, $2 job, $3 lane, $4
-- scheduled_at, $5 serial, $6 token, $7 what the result said. Returns the run if this node held it.
WITH locked AS MATERIALIZED (
    SELECT job, lane FROM live_runs
     WHERE job = $2 AND lane = $3 AND scheduled_at = $4 AND serial = $5 AND token = $6 AND owner = $1 FOR UPDATE),
deleted AS (DELETE FROM live_runs r USING locked WHERE r.job = locked.job AND r.lane = locked.lane RETURNING r.*),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
        reason, key, payload)
    SELECT job, scheduled_at, token, owner, started_at, now(), serial, revision, attempt, 2, 'quarantined', key, payload
      FROM deleted
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, owner, started_at, now(), attempt, 'failed', $7 FROM deleted
    ON CONFLICT (job, scheduled_at, serial, token) DO NOTHING)
SELECT job, lane FROM deleted
