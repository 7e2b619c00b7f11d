-- Delete workers that pulled their last run so long ago that history has no run of theirs: no partition that existed
-- then is left, as in job/purge. $1 days
WITH kept AS MATERIALIZED (
    SELECT b.since, coalesce(p.made_at, '-infinity') AS made_at
      FROM history_bounds b LEFT JOIN history_parts p ON p.name = b.name AND p.dropped_at IS NULL)
DELETE FROM pull_workers w WHERE seen_at < now() - make_interval(days => $1::integer + 1)
   AND NOT EXISTS (SELECT FROM kept k WHERE k.since <= w.seen_at AND k.made_at <= w.seen_at + interval '1 day')
   AND NOT EXISTS (SELECT FROM pull_leases l WHERE l.worker = w.worker)
