-- Lock the rules that have open alerts whose next message is due, or whose jobs have all recovered since the last look.
-- $1 limit
SELECT r.rule FROM alert_rules r JOIN tenants t USING (tenant)
 WHERE t.suspended_at IS NULL AND EXISTS (
    SELECT FROM alerts a WHERE a.rule = r.rule AND a.closed_at IS NULL
       AND (a.flush_at <= now() OR NOT a.calm AND NOT EXISTS (
           SELECT FROM alert_jobs u WHERE u.alert = a.alert AND u.recovered_at IS NULL)))
 ORDER BY r.rule LIMIT $1::integer FOR NO KEY UPDATE OF r SKIP LOCKED
