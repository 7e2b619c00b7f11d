-- Which server this is, and the timeline it writes; none while it only follows another. The timeline is read from the
-- name of the present WAL file: the control file learns of a promotion only with the next checkpoint.
SELECT s.system_identifier,
       CASE WHEN NOT pg_is_in_recovery()
           THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline
  FROM pg_control_system() AS s
