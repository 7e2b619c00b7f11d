-- The table of a database that was made before migrations recorded their compatibility.
ALTER TABLE schema_migrations ADD COLUMN IF NOT EXISTS compatible integer
