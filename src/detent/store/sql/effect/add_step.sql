-- Store the result of a step, if the run is still held under this token. $1 node, $2 job, $3 lane, $4 scheduled_at, $5
-- serial, $6 token, $7 name, $8 attempt, $9 how long it took, $10 result as JSON or NULL. No row: the run was lost. The
-- lock keeps a rescue waiting until the step is stored, so that the next attempt sees it. On a handler's connection,
-- which has the search path of its role: so the schema is named.
WITH fence AS (
    SELECT job, scheduled_at, serial, token FROM "{schema}".live_runs
     WHERE job = $2::bigint AND lane = $3::integer AND scheduled_at = $4::timestamptz AND serial = $5::integer
       AND token = $6::bigint AND owner = $1::bigint FOR SHARE)
INSERT INTO "{schema}".run_steps AS step (job, scheduled_at, serial, name, attempt, token, took, result)
SELECT job, scheduled_at, serial, $7::text, $8::smallint, token, $9::interval, $10::text FROM fence
ON CONFLICT (job, scheduled_at, serial, name) DO UPDATE
   SET attempt = excluded.attempt, token = excluded.token, stored_at = excluded.stored_at, took = excluded.took,
       result = excluded.result
 WHERE step.token <= excluded.token
RETURNING name
