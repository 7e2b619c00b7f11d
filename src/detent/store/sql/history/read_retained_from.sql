-- What ended before this is no longer kept. $1 days, $2 the time as the node knows it, as in expired_history
SELECT least(now(), $2::timestamptz) - make_interval(days => $1::integer) AS moment
