-- Some jobs of a tenant that have ended. $1 tenant, $2 how many
SELECT job FROM jobs WHERE tenant = $1::integer AND status = 'deleted' ORDER BY job LIMIT $2::integer
