-- Workers that pulled their last run so long ago that history has none of theirs. $1 days
DELETE FROM pull_workers w WHERE seen_at < now() - make_interval(days => $1::integer + 1)
   AND seen_at < (SELECT min(since) FROM history_bounds)
   AND NOT EXISTS (SELECT FROM pull_leases l WHERE l.worker = w.worker)
