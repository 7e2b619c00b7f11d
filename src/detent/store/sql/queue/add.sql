-- Insert queues, some of which may exist already, in the order of their key. $1 tenant, $2 names, $3 needs
INSERT INTO queues (tenant, name, needs)
SELECT $1, name, needs FROM unnest($2::text[], $3::text[]) AS v (name, needs) ORDER BY name, needs
ON CONFLICT (tenant, name, needs) DO NOTHING
