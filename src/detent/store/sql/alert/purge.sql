-- Delete alerts that closed before the history that is kept, and their messages. $1 days, $2 limit
WITH gone AS MATERIALIZED (
    SELECT alert FROM alerts WHERE closed_at < now() - make_interval(days => $1::integer)
     ORDER BY closed_at LIMIT $2::integer FOR UPDATE SKIP LOCKED),
purged_messages AS (DELETE FROM notices x USING gone WHERE x.alert = gone.alert),
purged_tests AS (
    DELETE FROM notices WHERE notice IN (
        SELECT notice FROM notices WHERE rule IS NOT NULL AND alert IS NULL
           AND ended_at < now() - make_interval(days => $1::integer) LIMIT $2::integer))
DELETE FROM alerts a USING gone WHERE a.alert = gone.alert RETURNING a.alert
