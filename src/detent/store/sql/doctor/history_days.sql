-- For how many days ahead history has partitions.
SELECT coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() AT TIME ZONE 'UTC')::date, -1) AS ahead
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'run_history'::regclass
   AND c.relname ~ '_\d{8}$'
