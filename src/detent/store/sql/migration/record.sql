-- $1 version, $2 name, $3 checksum of the file, $4 the oldest migration whose code may continue to work
INSERT INTO schema_migrations (version, name, sha256, compatible) VALUES ($1, $2, $3, $4)
