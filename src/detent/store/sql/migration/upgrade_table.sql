-- The table of a database that was made before migrations said with what they are compatible.
ALTER TABLE schema_migrations ADD COLUMN IF NOT EXISTS compatible integer
