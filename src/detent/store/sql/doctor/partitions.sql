-- Partitions without a live leader.
SELECT count(*) FILTER (WHERE NOT led) AS without, count(*) AS total
  FROM (SELECT EXISTS (SELECT FROM nodes n WHERE n.node = p.holder AND NOT n.evicted
                                      AND n.expires_at > clock_timestamp()) AS led FROM partitions p) AS each
