-- The numbers of the queues a worker can serve. $1 queue names, $2 what the worker has
SELECT queue FROM queues WHERE name = ANY ($1::text[]) AND needs = ANY ($2::text[]) ORDER BY queue
