-- The open alerts of these rules. $1 rules
SELECT a.alert, a.rule, a.only_job, a.messages, a.last_message_at,
       (SELECT count(*) FROM alert_jobs m WHERE m.alert = a.alert)::integer AS jobs
  FROM alerts a WHERE a.rule = ANY ($1::bigint[]) AND a.closed_at IS NULL ORDER BY a.alert
