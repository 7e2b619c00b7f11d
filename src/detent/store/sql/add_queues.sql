-- Queue rows that may be there already, in the order of their key. $1 names, $2 needs
INSERT INTO queues (name, needs)
SELECT name, needs FROM unnest($1::text[], $2::text[]) AS v (name, needs) ORDER BY name, needs
ON CONFLICT (name, needs) DO NOTHING
