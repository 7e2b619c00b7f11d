-- Of these rules, which are locked: the open alerts whose next message is due, or whose jobs have all recovered since
-- the last look. $1 rules, $2 limit
SELECT a.alert, a.rule, r.definition::text AS definition, r.name, a.severity, a.messages, a.last_message_at,
       nullif(a.flush_at, 'infinity') AS flush_at, a.calm, m.unrecovered, m.fresh + a.fresh_untracked > 0 AS fresh,
       now() AS at
  FROM alerts a JOIN alert_rules r USING (rule) CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE recovered_at IS NULL)::integer AS unrecovered, coalesce(sum(fresh), 0) AS fresh
      FROM alert_jobs WHERE alert = a.alert) m
 WHERE a.rule = ANY ($1::bigint[]) AND a.closed_at IS NULL
   AND (a.flush_at <= now() OR NOT a.calm AND m.unrecovered = 0)
 ORDER BY a.alert LIMIT $2::integer
