-- Messages that could not be delivered: those that are retried, and those given up within a day, at most $1 counted;
-- with the newest error and the alert rule of that message, if it has one. A message without any receiver is none of
-- these.
WITH failing AS MATERIALIZED (
    (SELECT notice, rule, ended_at, error FROM notices WHERE ended_at IS NULL AND error IS NOT NULL
      ORDER BY notice DESC LIMIT $1::integer)
    UNION ALL
    (SELECT notice, rule, ended_at, error FROM notices
      WHERE ended_at > now() - interval '1 day' AND error IS NOT NULL AND error NOT LIKE 'No receiver is configured%'
      ORDER BY notice DESC LIMIT $1::integer))
SELECT count(*) FILTER (WHERE ended_at IS NULL) AS waiting, count(*) FILTER (WHERE ended_at IS NOT NULL) AS given_up,
       (array_agg(error ORDER BY notice DESC))[1] AS error,
       (SELECT r.name FROM alert_rules r WHERE r.rule = (array_agg(f.rule ORDER BY f.notice DESC))[1]) AS rule
  FROM failing f
