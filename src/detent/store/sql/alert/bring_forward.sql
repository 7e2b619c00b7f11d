-- Look at alerts again no later than then. Arrays: $1 alert, $2 when
UPDATE alerts a SET flush_at = least(a.flush_at, v.flush_at)
  FROM unnest($1::bigint[], $2::timestamptz[]) AS v (alert, flush_at) WHERE a.alert = v.alert
