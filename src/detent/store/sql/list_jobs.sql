-- Numbers of jobs, oldest first. $1 tenant, $2 after this number, $3 limit; filters, each may be NULL: $4 status (NULL:
-- all but deleted), $5 beginning of the name, $6 tag, $7 kind of target
SELECT job FROM jobs
 WHERE tenant = $1::integer AND job > $2::bigint
   AND CASE WHEN $4::text IS NULL THEN status <> 'deleted' ELSE status = $4::text END
   AND ($5::text IS NULL OR starts_with(name, $5::text))
   AND ($6::text IS NULL OR tags @> ARRAY[$6::text])
   AND ($7::text IS NULL OR target = $7::text)
 ORDER BY job LIMIT $3::integer
