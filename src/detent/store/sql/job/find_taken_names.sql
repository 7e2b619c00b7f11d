-- Which of these names are taken by jobs of a tenant. $1 tenant, $2 names
SELECT v.name FROM unnest($2::text[]) AS v (name)
 WHERE EXISTS (SELECT FROM jobs j WHERE j.tenant = $1::integer AND j.name = v.name AND j.status <> 'deleted')
