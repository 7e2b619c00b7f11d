-- Delete incidents that closed before the history that is kept, and their messages. $1 days, $2 limit
WITH gone AS MATERIALIZED (
    SELECT incident FROM incidents WHERE closed_at < now() - make_interval(days => $1::integer)
     ORDER BY incident LIMIT $2::integer FOR UPDATE SKIP LOCKED),
purged_notices AS (DELETE FROM notices x USING gone WHERE x.incident = gone.incident)
DELETE FROM incidents i USING gone WHERE i.incident = gone.incident RETURNING i.incident
