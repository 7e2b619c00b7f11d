-- Who leads what: partitions without a live leader, and how often leadership changed in the last hour. One take-over
-- takes many partitions at one time.
SELECT count(*) FILTER (WHERE NOT led) AS without, count(*) AS total,
       count(DISTINCT taken_at) FILTER (WHERE taken_at > now() - interval '1 hour') AS taken,
       count(*) FILTER (WHERE taken_at > now() - interval '1 hour') AS moved, max(taken_at) AS last_taken
  FROM (SELECT p.taken_at, EXISTS (SELECT FROM nodes n WHERE n.node = p.holder AND NOT n.evicted
                                      AND n.expires_at > clock_timestamp()) AS led FROM partitions p) AS each
