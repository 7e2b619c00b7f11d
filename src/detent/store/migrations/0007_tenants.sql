-- Tenants beside each other: how much each may have, whose turn it is, and for how long history is kept.

-- max_jobs NULL: as many as there are; max_payload_bytes NULL: what the server takes. The weight is a tenant's share of
-- the workers when several have runs that wait.
ALTER TABLE tenants
    ADD COLUMN max_jobs          integer DEFAULT 100000 CHECK (max_jobs >= 0),
    ADD COLUMN max_payload_bytes integer CHECK (max_payload_bytes > 0),
    ADD COLUMN weight            smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100);

-- It belongs to whoever runs the server.
UPDATE tenants SET max_jobs = NULL WHERE tenant = 1;

-- How many jobs a tenant has that are not deleted, together with those for which room is reserved. Apart from `tenants`,
-- whose rows every new job locks for its foreign key.
CREATE TABLE tenant_jobs (
    tenant integer PRIMARY KEY REFERENCES tenants,
    jobs   integer NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

INSERT INTO tenant_jobs (tenant, jobs)
SELECT t.tenant, (SELECT count(*) FROM jobs j WHERE j.tenant = t.tenant AND j.status <> 'deleted') FROM tenants t;

CREATE FUNCTION count_jobs_of_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenant_jobs (tenant) VALUES (NEW.tenant);
    RETURN NULL;
END $$;

CREATE TRIGGER count_jobs_of_tenant AFTER INSERT ON tenants FOR EACH ROW EXECUTE FUNCTION count_jobs_of_tenant();

-- Room for jobs that are being registered: made in a short transaction of its own, so that two registrations do not wait
-- for each other, and deleted in the one that inserts the jobs. One that is left behind was given up.
CREATE TABLE job_reservations (
    reservation bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      integer NOT NULL,
    jobs        integer NOT NULL CHECK (jobs > 0),
    made_at     timestamptz NOT NULL DEFAULT now()
);

-- A job that is deleted makes room, whoever deletes it.
CREATE FUNCTION make_room_for_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tenant_jobs WHERE tenant IN (
        SELECT a.tenant FROM was a JOIN is_now b USING (job) WHERE a.status <> 'deleted' AND b.status = 'deleted')
      ORDER BY tenant FOR NO KEY UPDATE;
    UPDATE tenant_jobs t SET jobs = t.jobs - gone.jobs
      FROM (SELECT a.tenant, count(*) AS jobs FROM was a JOIN is_now b USING (job)
             WHERE a.status <> 'deleted' AND b.status = 'deleted' GROUP BY a.tenant) gone
     WHERE t.tenant = gone.tenant;
    RETURN NULL;
END $$;

CREATE TRIGGER make_room_for_jobs AFTER UPDATE ON jobs REFERENCING OLD TABLE AS was NEW TABLE AS is_now
    FOR EACH STATEMENT EXECUTE FUNCTION make_room_for_jobs();

-- Limits of a queue, under whatever it needs of a worker, or of a whole tenant (no queue named). A claim locks the rows
-- it is subject to, then looks how many runs are under way. What may start at once after a pause is what a second brings.
CREATE TABLE limits (
    number          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          integer NOT NULL REFERENCES tenants,
    queue           text,
    max_concurrent  integer CHECK (max_concurrent >= 0),
    rate_per_second double precision CHECK (rate_per_second > 0),
    tokens          double precision NOT NULL DEFAULT 0,
    filled_at       timestamptz NOT NULL DEFAULT now(),
    CHECK (max_concurrent IS NOT NULL OR rate_per_second IS NOT NULL),
    UNIQUE NULLS NOT DISTINCT (tenant, queue)
) WITH (fillfactor = 20);

-- Runs that were claimed under a limit, which are counted while somebody holds them. All others are in no index for this.
ALTER TABLE live_runs ADD COLUMN limited boolean NOT NULL DEFAULT false;
CREATE INDEX live_limited ON live_runs (queue) WHERE limited AND owner IS NOT NULL;

-- What one node does for all, now and then: whose turn it is, until when others leave it alone, and when it was last done.
CREATE TABLE turns (
    task    text PRIMARY KEY,
    node    bigint,
    until   timestamptz NOT NULL,
    done_at timestamptz
);

-- The tables that history is made of, from their making to their end. The oldest begins at -infinity.
CREATE TABLE history_parts (
    part        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent      text NOT NULL CHECK (parent IN ('run_history', 'attempts')),
    name        text NOT NULL,
    since       timestamptz NOT NULL,
    until       timestamptz NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT now(),
    detached_at timestamptz,                  -- read and written by nobody any more
    archive     text,                         -- where its rows are, complete,
    rows        bigint,                       -- how many,
    sha256      text,                         -- and of what bytes
    archived_at timestamptz,
    dropped_at  timestamptz,
    CHECK (since < until),
    CHECK ((archived_at IS NULL) = (archive IS NULL) AND (archive IS NULL) = (rows IS NULL) AND (archive IS NULL) = (sha256 IS NULL))
);
CREATE UNIQUE INDEX history_parts_name ON history_parts (name) WHERE dropped_at IS NULL;

CREATE VIEW history_bounds AS
SELECT p.relname::text AS parent, c.relname::text AS name, i.inhdetachpending AS detaching,
       coalesce(substring(b.bounds FROM 'FROM \(''([^'']+)''\)')::timestamptz, '-infinity') AS since,
       substring(b.bounds FROM 'TO \(''([^'']+)''\)')::timestamptz AS until
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_class p ON p.oid = i.inhparent
 CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bounds) b
 WHERE i.inhparent IN ('run_history'::regclass, 'attempts'::regclass);

INSERT INTO history_parts (parent, name, since, until, made_at) SELECT parent, name, since, until, until - interval '1 day' FROM history_bounds;

-- A home in history for one instant, if it has none: NULL where it has. Around it may be a gap, between partitions or
-- before the first one: what is behind us is one partition, however long, since little comes there so late; in what is to
-- come, each day has its own, and begins where the last one ends. A table is made LIKE its parent and attached: CREATE
-- TABLE … PARTITION OF would make settles queue behind a reader. There is no DEFAULT partition, which would forbid DETACH
-- CONCURRENTLY. One that was on its way out when its time comes again goes first.
CREATE FUNCTION make_history_part(of_table text, at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    midnight timestamptz := date_trunc('day', at, 'UTC');
    lower timestamptz;
    upper timestamptz;
    child text;
BEGIN
    IF EXISTS (SELECT FROM history_bounds b WHERE b.parent = of_table AND b.since <= at AND at < b.until AND NOT b.detaching) THEN
        RETURN NULL;
    END IF;
    -- The second of two nodes waits here, readers and settles do not.
    EXECUTE format('LOCK TABLE %I IN SHARE UPDATE EXCLUSIVE MODE', of_table);
    FOR child IN SELECT b.name FROM history_bounds b WHERE b.parent = of_table AND b.since <= at AND at < b.until LOOP
        IF EXISTS (SELECT FROM history_bounds b WHERE b.name = child AND NOT b.detaching) THEN
            RETURN NULL;
        END IF;
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I FINALIZE', of_table, child);
    END LOOP;
    SELECT max(b.until) INTO lower FROM history_bounds b WHERE b.parent = of_table AND b.until <= at;
    SELECT min(b.since) INTO upper FROM history_bounds b WHERE b.parent = of_table AND b.since > at;
    IF upper IS NULL OR midnight >= date_trunc('day', now(), 'UTC') THEN
        upper := midnight + interval '1 day';
    END IF;
    IF at > now() + interval '30 days' THEN
        lower := greatest(lower, midnight);
    END IF;
    child := of_table || '_' || to_char((upper - interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD');
    WHILE to_regclass(quote_ident(child)) IS NOT NULL LOOP      -- one of that name is detached and not dropped yet
        child := child || '_';
    END LOOP;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', child, of_table);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%L)', of_table, child,
                   CASE WHEN lower IS NULL THEN 'MINVALUE' ELSE quote_literal(lower) END, upper);
    UPDATE history_parts SET dropped_at = now() WHERE name = child AND dropped_at IS NULL;      -- by somebody else
    INSERT INTO history_parts (parent, name, since, until) VALUES (of_table, child, coalesce(lower, '-infinity'), upper);
    RETURN child;
END $$;

-- Drops what was detached, and nothing else, whatever has its name.
CREATE FUNCTION drop_history_part(child text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass(quote_ident(child)) IS NULL THEN
        RETURN true;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', child);
    IF (SELECT relispartition FROM pg_class WHERE oid = to_regclass(quote_ident(child))) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', child);
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION make_history_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN
    RETURN num_nonnulls(make_history_part('run_history', midnight), make_history_part('attempts', midnight)) > 0;
END $$;

-- Jobs that were deleted, for those who remove what is left of them.
CREATE INDEX jobs_deleted ON jobs (updated_at) WHERE status = 'deleted';
