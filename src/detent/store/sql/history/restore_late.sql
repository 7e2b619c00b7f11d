-- Move rows that ended after $1 from a detached partition back into history, at most $2 rows; returns how many
WITH late AS MATERIALIZED (SELECT {key} FROM {name} WHERE {ended} > $1::timestamptz LIMIT $2::integer),
gone AS (DELETE FROM {name} p USING late WHERE {same} RETURNING p.*),
kept AS (INSERT INTO {parent} SELECT * FROM gone ON CONFLICT DO NOTHING)
SELECT count(*) AS rows FROM gone
