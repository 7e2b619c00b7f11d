-- Many nodes on one database: sharing of partitions, elections on record, one switch for all, and what tells an
-- original from its copy.

ALTER TABLE nodes
    ADD COLUMN draining boolean NOT NULL DEFAULT false,      -- asked to hand over and to take nothing new
    ADD COLUMN draining_changed_at timestamptz,              -- when that was last asked for, or taken back
    ADD COLUMN knows    integer,                             -- the last migration that its code knows
    ADD COLUMN address  text,                                -- where its API listens, if it has one
    ADD COLUMN steady_since timestamptz NOT NULL DEFAULT now();  -- since when its process has seen this clock without a step

-- The number under which an outside coordinator nominated the holder. A nomination with a smaller one is stale, however
-- late it arrives. It stays 0 where the database itself decides.
ALTER TABLE partitions ADD COLUMN nomination bigint NOT NULL DEFAULT 0;

-- Every take-over, written by the statement that took the partition. The database says who led what and when.
CREATE TABLE elections (
    partition  smallint NOT NULL,
    term       bigint NOT NULL,
    node       bigint NOT NULL,
    nomination bigint NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, term)
);
CREATE INDEX elections_at ON elections (at);

-- held_at: no tick fires anywhere until somebody resumes. A copy made by dump and restore has other object numbers than
-- the original, on the same server too; a copy of the files is told by its timeline.
ALTER TABLE cluster
    ADD COLUMN held_at      timestamptz,
    ADD COLUMN held_by      text,
    ADD COLUMN held_reason  text,
    ADD COLUMN feed_until   timestamptz,                     -- somebody reads `changes`, at least until then
    ADD COLUMN database_oid oid,
    ADD COLUMN table_oid    oid,
    ADD COLUMN beat_at      timestamptz,      -- the last heartbeat of nodes that are forgotten
    ADD CONSTRAINT cluster_held CHECK ((held_at IS NULL) = (held_by IS NULL) AND (held_at IS NULL) = (held_reason IS NULL));

-- What this database is now, as against what `cluster` says it was when somebody last made sure of it. The timeline is
-- that of the present WAL file: the control file learns of a promotion only with the next checkpoint.
CREATE VIEW whereabouts AS
SELECT s.system_identifier,
       CASE WHEN NOT pg_is_in_recovery() THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline,
       (SELECT oid FROM pg_database WHERE datname = current_database()) AS database_oid, 'cluster'::regclass::oid AS table_oid
  FROM pg_control_system() AS s;

UPDATE cluster c SET timeline = w.timeline, database_oid = w.database_oid, table_oid = w.table_oid FROM whereabouts w;

-- The incarnation is above 22 bits of counter (0001 says 32), so that one as large as the seconds since 2020 leaves tokens
-- below 2^53, where the numbers of JavaScript end.
COMMENT ON COLUMN live_runs.token IS 'incarnation << 22 | counter';

-- What NOTIFY says, for nodes that cannot listen because a pooler stands between. Unlogged: it holds hints of the last
-- minutes, and what is lost with it is found by the next sweep. A reader goes by xid, since numbers are not given in
-- the order of commits.
CREATE UNLOGGED TABLE changes (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at      timestamptz NOT NULL DEFAULT now(),
    channel text NOT NULL,
    payload text NOT NULL
);
CREATE INDEX changes_xid ON changes (xid);

-- Also by the time of the end, which is the order in which rows arrive: what ended in the last seconds is found without
-- reading a day. One index of two columns, since every settle writes into each index.
DROP INDEX run_history_time;
CREATE INDEX run_history_time ON run_history USING brin (scheduled_at, finished_at)
    WITH (pages_per_range = 32, autosummarize = on);
