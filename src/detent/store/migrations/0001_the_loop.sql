-- The data model. Narrow, hot and small is kept apart from wide, cold and large: people change `jobs`;
-- every fire changes one `cursors` row and adds one `live_runs` row; every settle deletes that row and appends
-- to `run_history`. Statuses are numbers in the hot tables, words in the view `runs`.

-- One row: who this database is. The incarnation rises when a server may have lost commits (a promoted standby,
-- an adopted clone), so that no token and no term is ever given out twice.
CREATE TABLE cluster (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    id                uuid NOT NULL DEFAULT gen_random_uuid(),
    incarnation       bigint NOT NULL DEFAULT 1 CHECK (incarnation > 0),
    system_identifier bigint NOT NULL,
    timeline          integer NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);

INSERT INTO cluster (system_identifier, timeline)
SELECT s.system_identifier, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c;

CREATE TABLE tenants (
    tenant     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO tenants (name) VALUES ('default');

-- A queue row is a lane name together with what a worker must have to serve it: '' for targets every worker
-- can run, 'shell', or 'python:<function>'. A worker claims by the numbers of the rows it can serve, so a
-- function that only some workers have never blocks the others, and hot rows carry one integer.
CREATE TABLE queues (
    queue integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL,
    needs text NOT NULL,
    UNIQUE (name, needs)
);

INSERT INTO queues (name, needs) VALUES ('default', '');

-- Each distinct schedule once, in its stored form: ten million jobs share a few thousand of them, so window
-- loads stay narrow and next ticks can be remembered per schedule.
CREATE TABLE schedules (
    schedule integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stored   jsonb NOT NULL,
    digest   bytea NOT NULL UNIQUE
);

CREATE TABLE jobs (
    job        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY CHECK (job < 1::bigint << 46),
    id         uuid NOT NULL UNIQUE,
    tenant     integer NOT NULL DEFAULT 1 REFERENCES tenants,
    name       text NOT NULL,
    status     text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'completed', 'deleted')),
    revision   integer NOT NULL DEFAULT 1,
    partition  smallint NOT NULL CHECK (partition BETWEEN 0 AND 255),
    target     text NOT NULL,                 -- the kind: http, python, shell
    owner      text,                          -- the app that registers it in code; NULL: made by hand
    tags       text[] NOT NULL DEFAULT '{}',
    definition jsonb NOT NULL,
    reason     text,                          -- why it is paused
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- A name is free again after its job is deleted.
CREATE UNIQUE INDEX jobs_name ON jobs (tenant, name) WHERE status <> 'deleted';
CREATE INDEX jobs_by_status ON jobs (tenant, status, job);

-- Former definitions only: a run pins the revision it was fired with, and the current one is in `jobs`.
CREATE TABLE job_revisions (
    job         bigint NOT NULL,
    revision    integer NOT NULL,
    definition  jsonb NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, revision)
);

-- All a fire needs is here, so it reads no second table. Every change made by people bumps the generation,
-- hence the compare-and-set on (next_tick, generation) covers policies too.
CREATE TABLE cursors (
    job        bigint PRIMARY KEY,
    next_tick  timestamptz,                   -- NULL: paused, completed or deleted
    fire_at    timestamptz,                   -- next_tick plus jitter
    last_tick  timestamptz NOT NULL DEFAULT '-infinity',   -- fired or accounted for through here
    generation integer NOT NULL DEFAULT 1,
    serials    integer NOT NULL DEFAULT 0,    -- last serial given to a manual run of this job
    runs_left  integer CHECK (runs_left >= 0),             -- max_runs; NULL: unbounded
    queue      integer NOT NULL,
    schedule   integer NOT NULL,
    revision   integer NOT NULL DEFAULT 1,
    grace      integer NOT NULL DEFAULT -1,   -- seconds a missed tick may still run; -1: automatic
    partition  smallint NOT NULL,
    lanes      smallint NOT NULL DEFAULT 1,   -- 1 SKIP, n > 1 ALLOW n; -1 QUEUE and -2 REPLACE wait in negative lanes
    priority   smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 9),
    once       boolean NOT NULL DEFAULT false,             -- delivery: at_most_once
    ended      boolean NOT NULL DEFAULT false,             -- the last tick has fired; the job completes with its last run
    CHECK (next_tick > last_tick),
    CHECK (NOT ended OR next_tick IS NULL),
    CHECK (fire_at >= next_tick),
    CHECK ((next_tick IS NULL) = (fire_at IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX cursors_due ON cursors (partition, fire_at);
CREATE INDEX cursors_ended ON cursors (job) WHERE ended;

CREATE TABLE nodes (
    node         bigint PRIMARY KEY,          -- random per start: a sequence may repeat itself after a fail-over
    evicted      boolean NOT NULL DEFAULT false,
    ttl          interval NOT NULL,           -- each node's own: they may be started with different settings
    expires_at   timestamptz NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    beat_at      timestamptz NOT NULL DEFAULT now(),
    host         text NOT NULL,
    pid          integer NOT NULL,
    roles        text[] NOT NULL,
    version      text NOT NULL,
    tzdata       text NOT NULL,
    clock_offset double precision NOT NULL DEFAULT 0,      -- seconds the node's clock is ahead of this one
    -- Makes `evicted` part of a key, so that evicting a node conflicts with the FOR KEY SHARE its fires and
    -- claims take, while heartbeats do not.
    UNIQUE (node, evicted)
) WITH (fillfactor = 20);

CREATE TABLE partitions (
    partition smallint PRIMARY KEY,
    holder    bigint,
    term      bigint NOT NULL DEFAULT 0,
    taken_at  timestamptz
);

INSERT INTO partitions (partition) SELECT generate_series(0, 255);

-- A live run is addressed by (job, lane): the overlap rule is the primary key. scheduled_at, serial and token
-- are compared too, since a later run may use the same lane.
CREATE TABLE live_runs (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    token        bigint NOT NULL,             -- incarnation << 32 | counter
    owner        bigint,                      -- NULL: pending or retrying
    not_before   timestamptz NOT NULL,
    started_at   timestamptz,                 -- only where a crash must be told from a wait
    serial       integer NOT NULL DEFAULT 0,
    queue        integer NOT NULL,
    revision     integer NOT NULL,
    lane         smallint NOT NULL,           -- >= 0 occupies; -1 waits (QUEUE), -2 waits and replaces (REPLACE)
    attempt      smallint NOT NULL DEFAULT 1 CHECK (attempt > 0),
    crashes      smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    priority     smallint NOT NULL,
    once         boolean NOT NULL DEFAULT false,
    cancel       boolean NOT NULL DEFAULT false,
    CHECK (lane >= 0 OR owner IS NULL),
    CHECK (started_at IS NULL OR owner IS NOT NULL),
    PRIMARY KEY (job, lane)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Partial on owner: a direct hand-off never enters it, and no settle can be planned onto it.
CREATE INDEX live_ready ON live_runs (queue, priority, not_before) WHERE owner IS NULL AND lane >= 0;
CREATE INDEX live_waiting ON live_runs (job) WHERE lane < 0;

-- Finished runs and ticks that did not run. 1 succeeded, 2 dead, 3 cancelled, 4 skipped, 5 missed.
CREATE TABLE run_history (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    token        bigint,
    node         bigint,
    started_at   timestamptz,
    finished_at  timestamptz NOT NULL,
    serial       integer NOT NULL,
    revision     integer NOT NULL,
    attempt      smallint,
    status       smallint NOT NULL CHECK (status BETWEEN 1 AND 5),
    ticks        integer CHECK (ticks > 0),   -- a range of ticks: how many,
    until        timestamptz,                 -- and the last of them
    reason       text,
    result       text,
    -- What ran to an end has a token and an attempt; what never ran has neither.
    CHECK ((status IN (1, 2)) <= (token IS NOT NULL AND attempt IS NOT NULL)),
    CHECK ((status IN (4, 5)) <= (token IS NULL AND attempt IS NULL)),
    CHECK ((ticks IS NULL) = (until IS NULL)),
    PRIMARY KEY (job, scheduled_at, serial)
) PARTITION BY RANGE (scheduled_at);

-- Rows arrive almost in the order of their time, so a few bytes per block range are enough to page through all jobs'
-- runs by time, where a B-tree would cost every settle a write.
CREATE INDEX run_history_time ON run_history USING brin (scheduled_at) WITH (pages_per_range = 32, autosummarize = on);

-- Attempts that did not simply succeed the first time. Keyed by token, which answers whether a failure whose
-- reply was lost had been recorded.
CREATE TABLE attempts (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    token        bigint NOT NULL,
    node         bigint,
    started_at   timestamptz,
    finished_at  timestamptz NOT NULL,
    attempt      smallint NOT NULL,
    outcome      text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'timeout', 'lost', 'stale', 'cancelled')),
    error        text,
    PRIMARY KEY (job, scheduled_at, serial, token)
) PARTITION BY RANGE (scheduled_at);

-- Makes the history partition of one UTC day if it is not there. A table is made LIKE its parent and attached:
-- CREATE TABLE … PARTITION OF would make settles queue behind a reader. The very first one starts at MINVALUE,
-- so that a tick missed long ago has a home; there is no DEFAULT partition, which would forbid DETACH CONCURRENTLY.
-- The next one begins where the last one ends, so that the ticks missed on days when nobody made a partition have one.
CREATE FUNCTION make_history_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    child  text;
    midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
    last_end timestamptz;
    made boolean := false;
BEGIN
    FOREACH parent IN ARRAY ARRAY['run_history', 'attempts'] LOOP
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(quote_ident(child)) IS NOT NULL;
        -- The second of two nodes waits here, readers and settles do not.
        EXECUTE format('LOCK TABLE %I IN SHARE UPDATE EXCLUSIVE MODE', parent);
        CONTINUE WHEN to_regclass(quote_ident(child)) IS NOT NULL;
        SELECT max(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)')::timestamptz) INTO last_end
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = parent::regclass;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', child, parent);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%L)', parent, child,
                       CASE WHEN last_end IS NULL THEN 'MINVALUE' ELSE quote_literal(least(last_end, midnight)) END,
                       midnight + interval '24 hours');
        made := true;
    END LOOP;
    RETURN made;
END $$;

SELECT make_history_day(((now() AT TIME ZONE 'UTC')::date) + n) FROM generate_series(0, 7) AS n ORDER BY n;

-- The run id is the tick, reversibly: 48 bits of milliseconds, version 7, 12 bits of serial, variant, 16 bits of
-- serial, 46 bits of job. Ids are neither stored nor indexed; looking one up decodes it into primary keys.
CREATE FUNCTION run_id(job bigint, at timestamptz, serial integer) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(serial >> 16), 3, '0')
         || lpad(to_hex(((2::bit(2) || (serial & 65535)::bit(16) || job::bit(46))::bit(64))::bigint), 16, '0'))::uuid
$$;

-- For reading: every run, finished or not, under one vocabulary.
CREATE VIEW runs AS
SELECT job, scheduled_at, serial,
       CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END AS status,
       CASE WHEN cancel THEN 'cancelling' END AS reason, attempt, token, owner AS node, revision,
       started_at, NULL::timestamptz AS finished_at, NULL::text AS result,
       NULL::integer AS ticks, NULL::timestamptz AS until, not_before
  FROM live_runs
UNION ALL
SELECT job, scheduled_at, serial,
       CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4 THEN 'skipped' ELSE 'missed' END,
       reason, attempt, token, node, revision, started_at, finished_at, result, ticks, until, NULL
  FROM run_history;
