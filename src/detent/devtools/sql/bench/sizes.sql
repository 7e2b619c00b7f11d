-- Bytes of the tables whose rows come and go, with their indexes.
SELECT pg_total_relation_size('cursors') AS cursors, pg_total_relation_size('live_runs') AS live_runs
