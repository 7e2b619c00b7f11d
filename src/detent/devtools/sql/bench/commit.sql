-- The least that can be made durable. $1 any number
INSERT INTO bench_batches (batch, job) VALUES (-1, $1::bigint)
