-- $1 tenant, $2 names, $3 needs
SELECT q.queue, q.name, q.needs, q.unused_since IS NOT NULL AS marked
  FROM unnest($2::text[], $3::text[]) AS v (name, needs) JOIN queues q USING (name, needs)
 WHERE q.tenant = $1
