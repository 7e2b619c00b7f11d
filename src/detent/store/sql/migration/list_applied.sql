-- The migrations that were applied to this database, in order. Through JSON, because the table of an older database
-- lacks a column.
SELECT version, name, sha256, applied_at, (to_jsonb(m) ->> 'compatible')::integer AS compatible
  FROM schema_migrations m ORDER BY version
