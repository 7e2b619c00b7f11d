-- Whether the database answers, and what a process checks before it reports that it is ready.
SELECT c.held_at, (SELECT count(*) FROM (SELECT FROM set_aside_jobs LIMIT 1000) s) AS set_aside, NOT EXISTS (SELECT
  FROM jobs) OR EXISTS (
           SELECT FROM cluster JOIN whereabouts USING (system_identifier, database_oid, table_oid,
       timeline)) AS original, (SELECT max(version) FROM schema_migrations) AS migration,
       (SELECT coalesce(max(to_date(right(k.relname, 8), 'YYYYMMDD')) - (now() AT TIME ZONE 'UTC')::date, -1)
          FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
         WHERE i.inhparent = 'run_history'::regclass AND k.relname ~ '_\d{8}$') AS history_days
  FROM cluster c
