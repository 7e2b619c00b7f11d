-- Enqueue runs with the rights of the connection's own role, by the function that is granted to applications. $1 task,
-- $2 an array of documents as JSON, $3 tenant
SELECT run, created, status, scheduled_at
  FROM enqueue_many(CAST($1 AS text), CAST(CAST($2 AS text) AS jsonb), CAST($3 AS text))
