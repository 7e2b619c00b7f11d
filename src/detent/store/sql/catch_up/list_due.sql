-- Ranges of ticks that may be released now, some of each partition. $1 partitions, $2 for each: after which range, $3
-- limit per partition. Missed ticks of a paused job wait until it is resumed, as everything of a suspended tenant does.
-- Of the missed ranges of one job only the oldest is returned; backfills are independent of them.
SELECT k.catchup, k.job, k.partition, k.kind, k.schedule, k.since, k.until, k.next_tick, k.descending, k.generation,
       k.status = 'deleted' OR k.kind = 'missed' AND (k.status = 'completed' OR k.runs_left IS NOT DISTINCT
           FROM 0) AS dead, k.status,
       k.left_over
  FROM unnest($1::smallint[], $2::bigint[]) AS p (partition, after)
 CROSS JOIN LATERAL (
    SELECT t.*, c.generation, c.runs_left, j.status
      FROM catchups t JOIN cursors c ON c.job = t.job JOIN jobs j ON j.job = t.job
     WHERE t.partition = p.partition AND t.catchup > p.after AND j.status <> 'paused'
       AND c.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
       AND NOT (t.kind = 'missed' AND EXISTS (
                SELECT FROM catchups o WHERE o.job = t.job AND o.kind = 'missed' AND o.catchup < t.catchup))
     ORDER BY t.catchup LIMIT $3) AS k
