-- Partitions whose time is over, and those that were on their way out. $1 days. One that was made later than its day, for
-- something old that was still to be recorded, is kept as long as everything else: from its making on.
SELECT p.part, p.parent, p.name, p.until, p.archived_at IS NOT NULL AS archived,
       CASE WHEN b.detaching THEN 'detaching' WHEN b.name IS NOT NULL THEN 'attached'
            WHEN to_regclass(quote_ident(p.name)) IS NULL THEN 'gone' ELSE 'detached' END AS state
  FROM history_parts p LEFT JOIN history_bounds b USING (name)
 WHERE p.dropped_at IS NULL
   AND (b.name IS NULL OR b.detaching OR greatest(p.until, p.made_at) < now() - make_interval(days => $1::integer))
 ORDER BY p.until, p.parent DESC
