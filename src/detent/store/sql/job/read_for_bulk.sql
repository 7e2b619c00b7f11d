-- $1 numbers
SELECT job, id, name, status FROM jobs WHERE job = ANY ($1::bigint[]) ORDER BY job
