-- Settle runs of jobs that have one run each in this batch: delete the live row, write history. $1 node, $2 the jobs,
-- sorted. Of the columns that often agree, one value for all runs, or NULL and an array: $3 and $4 lane, $5 and $6
-- scheduled_at, $7 and $8 serial, $9 and $10 token, $11 and $12 status, $13 and $14 reason, $15 and $16 outcome, $17
-- and $18 error of the attempt. Arrays: $19 started, $20 finished (both in seconds since 1970, which cost the node half
-- as much to send), $21 result, $22 traceback of the attempt; NULL: none has one.
-- width_bucket finds the place of a job in the arrays by a binary search: no join, so nothing that the planner can get
-- wrong. (Where a vacuum had last found the queue almost empty in a large file, a join became a scan of all of it, and
-- 38,000 runs/s fell to 10,000.) The connections on which this is sent use indexes only (store/limits.py), so rows are
-- locked in the order of their keys without a pass of its own, which was two fifths of the cost.
-- Returns what was not settled; run/find_settled then distinguishes a repeated settle from a lost claim. Status 1 is
-- succeeded: its attempts are recorded only if there was more than one. Status 3 is cancelled: only the live row says
-- whether the next tick did it.
WITH deleted AS (
    DELETE FROM live_runs r
     WHERE r.job = ANY ($2::bigint[])
       AND r.lane = coalesce($3::integer, ($4::integer[])[width_bucket(r.job, $2::bigint[])])
       AND r.scheduled_at = coalesce($5::timestamptz, ($6::timestamptz[])[width_bucket(r.job, $2::bigint[])])
       AND r.serial = coalesce($7::integer, ($8::integer[])[width_bucket(r.job, $2::bigint[])])
       AND r.token = coalesce($9::bigint, ($10::bigint[])[width_bucket(r.job, $2::bigint[])])
       AND r.owner = $1
    RETURNING r.job, r.scheduled_at, r.serial, r.token, r.attempt, r.revision, r.replaced, r.key, r.payload,
              width_bucket(r.job, $2::bigint[]) AS place),
ended AS NOT MATERIALIZED (                  -- a copy of all rows would cost more than what is computed twice
    SELECT deleted.*, coalesce($11::smallint, ($12::smallint[])[place]) AS status,
           to_timestamp(($19::double precision[])[place]) AS started,
           to_timestamp(($20::double precision[])[place]) AS finished
      FROM deleted),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
                             reason, result, key, payload)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, status,
           CASE WHEN replaced AND status = 3 THEN 'replaced'
                ELSE coalesce($13::text, ($14::text[])[place]) END, ($21::text[])[place], key, payload
      FROM ended),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error,
                          traceback)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, coalesce($15::text, ($16::text[])[place]),
           coalesce($17::text, ($18::text[])[place]), ($22::text[])[place]
      FROM ended WHERE status <> 1 OR attempt > 1)
SELECT job, coalesce($3::integer, ($4::integer[])[place]) AS lane
  FROM unnest($2::bigint[]) WITH ORDINALITY AS sent (job, place)
 WHERE (SELECT count(*) FROM deleted) < cardinality($2::bigint[]) AND job NOT IN (SELECT job FROM deleted)
