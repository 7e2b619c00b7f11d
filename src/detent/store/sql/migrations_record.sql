-- $1 version, $2 name, $3 checksum of the file
INSERT INTO schema_migrations (version, name, sha256) VALUES ($1, $2, $3)
