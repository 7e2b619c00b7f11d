-- Delete alerts that closed before the history that is kept, with their messages, and messages of rules that ended
-- before it: tests, and those of alerts that are still open. $1 days, $2 limit. Returns a row for each alert and such
-- message.
WITH gone AS MATERIALIZED (
    SELECT alert FROM alerts WHERE closed_at < now() - make_interval(days => $1::integer)
     ORDER BY closed_at LIMIT $2::integer FOR UPDATE SKIP LOCKED),
purged_messages AS (DELETE FROM notices x USING gone WHERE x.alert = gone.alert),
purged_alerts AS (DELETE FROM alerts a USING gone WHERE a.alert = gone.alert RETURNING a.alert),
ended AS MATERIALIZED (
    SELECT notice FROM notices n WHERE rule IS NOT NULL AND ended_at < now() - make_interval(days => $1::integer)
       AND NOT EXISTS (SELECT FROM gone WHERE gone.alert = n.alert) LIMIT $2::integer),
purged_ended AS (DELETE FROM notices x USING ended WHERE x.notice = ended.notice RETURNING x.notice)
SELECT alert AS purged FROM purged_alerts UNION ALL SELECT notice FROM purged_ended
