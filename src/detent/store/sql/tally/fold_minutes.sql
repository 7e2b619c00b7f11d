-- Add to each minute the runs that ended in ($1, $2], unless another node has done so: the mark must still be $1. $3
-- the bounds of lateness in seconds, $4 the tenant if there is only one. Only the first attempt of a tick shows how
-- late a run started.
WITH moved AS MATERIALIZED (
    UPDATE tally SET folded_until = $2::timestamptz WHERE folded_until = $1::timestamptz RETURNING one),
ended AS (
    SELECT coalesce($4::integer, (SELECT j.tenant FROM jobs j WHERE j.job = h.job)) AS tenant,
           date_trunc('minute', h.finished_at, 'UTC') AS minute, h.status,
           CASE WHEN h.status <= 3 AND h.attempt = 1 AND h.serial = 0
                THEN width_bucket(extract(epoch FROM h.started_at - h.scheduled_at)::float8,
           $3::float8[]) END AS bucket, coalesce(h.ticks, 1) AS ticks
      FROM run_history h WHERE h.finished_at > $1::timestamptz AND h.finished_at <= $2::timestamptz)
INSERT INTO run_minutes AS m (tenant, minute, status, bucket, runs)
SELECT tenant, minute, status, coalesce(bucket, -1), sum(ticks) FROM ended
 WHERE tenant IS NOT NULL AND EXISTS (SELECT FROM moved) GROUP BY 1, 2, 3, 4
ON CONFLICT (tenant, minute, status, bucket) DO UPDATE SET runs = m.runs + excluded.runs
