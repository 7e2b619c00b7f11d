-- detent: compatible with 0009
-- What attempts write while they run: their lines, how far they are, and the traceback of a failure.
--
-- Nodes of older releases go on next to this: they write no lines, and attempts without a traceback.

-- All locks first, as in 0021.
DO $$
DECLARE
    usual_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR attempt IN 1..300 LOOP
        BEGIN
            LOCK TABLE attempts, history_parts IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', usual_timeout, true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_sleep(random() / 10);
        END;
    END LOOP;
    RAISE EXCEPTION 'another program holds locks on the tables of detent: end its transactions, then try again'
        USING ERRCODE = 'lock_not_available';
END $$;

ALTER TABLE attempts ADD COLUMN traceback text;

-- Lines in chunks, because a row per line would cost ten times as much to write and to keep. Keyed by token: an attempt
-- that lost its run can write only its own lines. The first lines of an attempt are in parts 1, 2, …, each written once. The
-- last ones are in part 32767, which is replaced until the attempt ends. A gap between two numbers is what was left out.
CREATE TABLE run_logs (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    part         smallint NOT NULL,
    attempt      smallint NOT NULL,
    token        bigint NOT NULL,
    written_at   timestamptz NOT NULL DEFAULT now(),
    first        integer NOT NULL,            -- the number of its first line in the attempt, from 1 on
    last         integer NOT NULL,
    lines        text NOT NULL,               -- JSON: [[number, milliseconds since 1970, level, logger, message], …]
    PRIMARY KEY (job, scheduled_at, serial, token, part)
) PARTITION BY RANGE (scheduled_at);
CREATE INDEX run_logs_written_at ON run_logs USING brin (written_at);

-- How far a running attempt is. Not in live_runs, whose rows every claim and settle rewrites. A row of a run that has ended is
-- removed later, by the housekeeping.
CREATE TABLE run_progress (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    token        bigint NOT NULL,
    at           timestamptz NOT NULL,
    fraction     real NOT NULL CHECK (fraction BETWEEN 0 AND 1),
    message      text NOT NULL,
    PRIMARY KEY (job, scheduled_at, serial)
) WITH (fillfactor = 70);

-- run_logs is history: the same partitions, the same retention.
ALTER TABLE history_parts DROP CONSTRAINT history_parts_parent_check;
ALTER TABLE history_parts ADD CONSTRAINT history_parts_parent_check CHECK (parent IN ('run_history', 'attempts', 'run_logs'));

CREATE OR REPLACE VIEW history_bounds AS
SELECT p.relname::text AS parent, c.relname::text AS name, i.inhdetachpending AS detaching,
       coalesce(substring(b.bounds FROM 'FROM \(''([^'']+)''\)')::timestamptz, '-infinity') AS since,
       substring(b.bounds FROM 'TO \(''([^'']+)''\)')::timestamptz AS until
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_class p ON p.oid = i.inhparent
 CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bounds) b
 WHERE i.inhparent IN ('run_history'::regclass, 'attempts'::regclass, 'run_logs'::regclass);

CREATE OR REPLACE FUNCTION make_history_part(of_table text, at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    midnight timestamptz := date_trunc('day', at, 'UTC');
    lower timestamptz;
    upper timestamptz;
    child text;
    privilege record;
BEGIN
    IF of_table NOT IN ('run_history', 'attempts', 'run_logs') OR of_table IS NULL THEN
        RAISE EXCEPTION '% is no table of history', of_table USING ERRCODE = 'insufficient_privilege';
    END IF;
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
    -- Once detached, it is read by its own name, and emptied by those who write to history.
    FOR privilege IN
        SELECT CASE a.privilege_type WHEN 'INSERT' THEN 'DELETE' ELSE 'SELECT' END AS kind, a.grantee::regrole AS grantee
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.oid = of_table::regclass AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type IN ('SELECT', 'INSERT') LOOP
        EXECUTE format('GRANT %s ON %I TO %s', privilege.kind, child, privilege.grantee);
    END LOOP;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%L)', of_table, child,
                   CASE WHEN lower IS NULL THEN 'MINVALUE' ELSE quote_literal(lower) END, upper);
    UPDATE history_parts SET dropped_at = now() WHERE name = child AND dropped_at IS NULL;      -- dropped by hand
    INSERT INTO history_parts (parent, name, since, until) VALUES (of_table, child, coalesce(lower, '-infinity'), upper);
    RETURN child;
END $$;

-- A function that is replaced keeps its owner and its privileges, and loses its settings.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION make_history_part(text, timestamptz) SECURITY DEFINER SET search_path = %I, pg_temp',
                   current_schema());
END $$;

CREATE OR REPLACE FUNCTION make_history_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN
    RETURN num_nonnulls(make_history_part('run_history', midnight), make_history_part('attempts', midnight),
                        make_history_part('run_logs', midnight)) > 0;
END $$;

SELECT make_history_day(((now() AT TIME ZONE 'UTC')::date) + n) FROM generate_series(0, 7) AS n ORDER BY n;
