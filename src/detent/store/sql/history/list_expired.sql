-- Partitions whose retention is over, in any stage of removal, and those that were dropped outside detent. $1 days, $2
-- one of them or NULL for all, $3 the time as the node knows it, or NULL: a clock that has just stepped is not trusted,
-- nor is any clock while ticks are held. A partition that was made after its day, for an old run that was still to be
-- recorded, is kept for the full retention, counted from when it was made.
SELECT p.part, p.parent, p.name, p.until, p.archived_at IS NOT NULL AS archived,
       CASE WHEN b.detaching THEN 'detaching' WHEN b.name IS NOT NULL THEN 'attached'
            WHEN to_regclass(quote_ident(p.name)) IS NULL THEN 'gone' ELSE 'detached' END AS state
  FROM history_parts p LEFT JOIN history_bounds b USING (name)
 WHERE p.dropped_at IS NULL AND ($2::bigint IS NULL OR p.part = $2::bigint)
   AND (to_regclass(quote_ident(p.name)) IS NULL
        OR greatest(p.until, p.made_at) < least(now(), $3::timestamptz) - make_interval(days => $1::integer)
       AND (SELECT held_at IS NULL FROM cluster))
 ORDER BY p.until, p.parent DESC
