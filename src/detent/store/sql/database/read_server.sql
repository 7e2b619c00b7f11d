-- Which server this is, and the timeline it writes; NULL while it is a standby. The timeline is read from the name of
-- the current WAL file: the control file contains a promotion only after the next checkpoint.
SELECT s.system_identifier,
       CASE WHEN NOT pg_is_in_recovery()
           THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline
  FROM pg_control_system() AS s
