-- What ended after $1 goes from a detached part back into history, $2 rows at the most; how many
WITH late AS MATERIALIZED (SELECT {key} FROM {name} WHERE finished_at > $1::timestamptz LIMIT $2::integer),
gone AS (DELETE FROM {name} p USING late WHERE {same} RETURNING p.*),
kept AS (INSERT INTO {parent} SELECT * FROM gone ON CONFLICT DO NOTHING)
SELECT count(*) AS rows FROM gone
