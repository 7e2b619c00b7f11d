-- Of these places where runs wait, those that no live worker serves. $1 tenant, $2 queues and $3 needs of the places.
-- `workers`: whether there is any worker. `able`: queues of workers that have the needs. `known`: functions of workers,
-- if a function is needed, for the first three places only: there may be thousands, and they are for a hint about a
-- wrong name. A worker of an older release, or one that pulls runs of the tenant, may serve anything.
WITH workers AS MATERIALIZED (
    SELECT queues, capabilities FROM nodes
     WHERE NOT evicted AND NOT draining AND expires_at > now() AND 'worker' = ANY (roles)),
able AS MATERIALIZED (
    SELECT p.queue, p.needs, w.queues
      FROM unnest($2::text[], $3::text[]) AS p (queue, needs)
      JOIN workers w ON p.needs = '' OR p.needs = ANY (w.capabilities)
        OR p.needs || '@' || $1::integer = ANY (w.capabilities))
SELECT p.queue, p.needs, EXISTS (SELECT FROM workers) AS workers,
       ARRAY(SELECT DISTINCT unnest(a.queues) AS name FROM able a WHERE a.queue = p.queue AND a.needs = p.needs
              ORDER BY name LIMIT 5) AS able,
       CASE WHEN p.needs ~ '^(python|process):' AND row_number() OVER () <= 3 THEN ARRAY(
           SELECT DISTINCT substring(c FROM ':(.*)') AS name FROM workers w, unnest(w.capabilities) AS c
            WHERE c ~ '^(python|process):' ORDER BY name LIMIT 2000) ELSE '{}' END AS known
  FROM unnest($2::text[], $3::text[]) AS p (queue, needs)
 WHERE NOT EXISTS (SELECT FROM workers WHERE queues IS NULL)
   AND NOT EXISTS (SELECT FROM pull_workers WHERE tenant = $1::integer AND seen_at > now() - interval '1 minute'
                      AND NOT starts_with(name, 'callback:'))
   AND NOT EXISTS (SELECT FROM able a WHERE a.queue = p.queue AND a.needs = p.needs AND p.queue = ANY (a.queues))
