-- Ticks that should have fired more than $1 ago; $2 job or NULL. By partition, because that is how the index is sorted.
SELECT coalesce(sum(late.ticks), 0)::bigint AS ticks, min(late.oldest) AS oldest,
       count(*) FILTER (WHERE late.ticks > 0) AS partitions
  FROM generate_series(0, 255) AS p (partition),
       LATERAL (SELECT count(*) AS ticks, min(c.fire_at) AS oldest FROM cursors c
                 WHERE c.partition = p.partition AND c.fire_at < now() - $1::interval
                   AND ($2::bigint IS NULL OR c.job = $2::bigint)) AS late
