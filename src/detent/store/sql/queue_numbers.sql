-- $1 names, $2 needs
SELECT q.queue, q.name, q.needs FROM unnest($1::text[], $2::text[]) AS v (name, needs) JOIN queues q USING (name, needs)
