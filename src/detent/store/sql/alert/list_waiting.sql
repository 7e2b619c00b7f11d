-- The open alerts of a rule whose next look lies ahead, with what their grouping depends on. $1 rule
SELECT a.alert, a.calm, a.messages, a.last_message_at, a.opened_at, m.fresh_at, m.recovered_at
  FROM alerts a CROSS JOIN LATERAL (
    SELECT min(last_at) FILTER (WHERE fresh > 0) AS fresh_at, max(recovered_at) AS recovered_at
      FROM alert_jobs WHERE alert = a.alert) m
 WHERE a.rule = $1::bigint AND a.closed_at IS NULL AND a.flush_at > now() AND a.flush_at < 'infinity'
