-- Whether this server is on the timeline on which nodes joined: through a pooler, a statement checks this in addition
-- to its fence.
SELECT timeline = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer FROM cluster
