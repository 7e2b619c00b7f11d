-- How many transactions this database has had. What statements of the last second have counted may be missing.
SELECT xact_commit + xact_rollback AS transactions FROM pg_stat_database WHERE datname = current_database()
