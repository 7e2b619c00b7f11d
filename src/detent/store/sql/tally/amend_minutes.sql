-- Count whole minutes again, from $1 up to $2, to include runs that were recorded late. $3 and $4 as for
-- tally/fold_minutes; nothing is done if more than $5 runs are counted already, because it would take too long. Counts
-- only grow by this.
WITH known AS MATERIALIZED (
    SELECT coalesce(sum(runs), 0) AS runs FROM run_minutes WHERE minute >= $1::timestamptz
        AND minute < $2::timestamptz),
ended AS (
    SELECT coalesce($4::integer, (SELECT j.tenant FROM jobs j WHERE j.job = h.job)) AS tenant,
           date_trunc('minute', h.finished_at, 'UTC') AS minute, h.status,
           CASE WHEN h.status <= 3 AND h.attempt = 1 AND h.serial = 0
                THEN width_bucket(extract(epoch FROM h.started_at - h.scheduled_at)::float8,
           $3::float8[]) END AS bucket, coalesce(h.ticks, 1) AS ticks
      FROM run_history h
     WHERE h.finished_at >= $1::timestamptz AND h.finished_at < $2::timestamptz
       AND (SELECT runs FROM known) < $5::bigint)
INSERT INTO run_minutes AS m (tenant, minute, status, bucket, runs)
SELECT tenant, minute, status, coalesce(bucket, -1), sum(ticks) FROM ended WHERE tenant IS NOT NULL GROUP BY 1, 2, 3, 4
ON CONFLICT (tenant, minute, status, bucket) DO UPDATE SET runs = excluded.runs WHERE excluded.runs > m.runs
