-- The batches in which the jobs of a herd are written: those of a partition together, as the loop has them. $1 first
-- and $2 last job, $3 jobs in a batch. Returns how many there are.
WITH b AS (
    INSERT INTO bench_batches (batch, job)
    SELECT (row_number() OVER (ORDER BY partition, job) - 1) / $3::integer, job FROM cursors
     WHERE job BETWEEN $1::bigint AND $2::bigint
    RETURNING batch)
SELECT max(batch) + 1 AS batches FROM b
