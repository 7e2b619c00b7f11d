-- Runs that ended before this time are no longer kept. $1 days, $2 the time as in history/list_expired
SELECT least(now(), $2::timestamptz) - make_interval(days => $1::integer) AS moment
