-- $1 workers
SELECT worker, name FROM pull_workers WHERE worker = ANY ($1::bigint[])
