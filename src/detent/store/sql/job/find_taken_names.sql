-- Which of these names jobs of a tenant have. $1 tenant, $2 names
SELECT v.name FROM unnest($2::text[]) AS v (name)
 WHERE EXISTS (SELECT FROM jobs j WHERE j.tenant = $1::integer AND j.name = v.name AND j.status <> 'deleted')
