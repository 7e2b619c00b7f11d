-- Add events to open alerts. Arrays: $1 alert, $2 severity, $3 events, $4 untracked events, $5 when the next message
-- may be made
UPDATE alerts a SET severity = greatest(a.severity, v.severity), events = a.events + v.events,
       untracked = a.untracked + v.untracked, fresh_untracked = a.fresh_untracked + v.untracked,
       flush_at = least(a.flush_at, v.flush_at), calm = false
  FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::timestamptz[])
       AS v (alert, severity, events, untracked, flush_at)
 WHERE a.alert = v.alert
