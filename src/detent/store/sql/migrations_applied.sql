-- What this database has been through, in order.
SELECT version, name, sha256, applied_at FROM schema_migrations ORDER BY version
