-- Remove the oldest events. $1 after so many days, $2 the time of the caller's clock or NULL, $3 at most so many
SELECT purge_audit_events(least(now(), $2::timestamptz) - make_interval(days => $1::integer), $3::integer) AS removed
