-- Tables that every fire or every on-demand run writes: dead rows in them cost every claim.
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead, greatest(last_vacuum, last_autovacuum) AS vacuumed
  FROM pg_stat_user_tables
 WHERE schemaname = current_schema() AND relname IN ('cursors', 'live_runs', 'backlog', 'nodes')
