-- detent: compatible with 0009
-- On-demand runs. A run that waits is a row of `backlog`, and any number may wait there. A claim moves it into `live_runs`,
-- which stays small because rescue, reconcile and the dashboard read it as a whole. From there on it is a run like any other.
--
-- Nodes of older releases never claim such a run: its queue is a row whose `needs` begin with `task:`, which they do not
-- serve.

-- All locks first. Statements of the nodes that are running lock these tables too, each in its own order, and a migration that
-- changed one table after another would be part of a deadlock with them: one of both would fail, after a second in which
-- nothing fires. This waits only a moment for each lock, releases those that it has, and tries again.
DO $$
DECLARE
    usual_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR attempt IN 1..300 LOOP
        BEGIN
            LOCK TABLE tenants IN SHARE ROW EXCLUSIVE MODE;
            LOCK TABLE cursors, runs, live_runs, run_history, pull_leases IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', usual_timeout, true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_sleep(random() / 10);
        END;
    END LOOP;
    RAISE EXCEPTION 'another program holds locks on the tables of detent: end its transactions, then try again'
        USING ERRCODE = 'lock_not_available';
END $$;

-- A claimed run of a task has its serial as its lane, far above the lanes of ticks. A rewrite, of a small table.
ALTER TABLE live_runs ALTER COLUMN lane TYPE integer;
ALTER TABLE pull_leases ALTER COLUMN lane TYPE integer;
-- One probe per settled run, where the primary key would read all live runs of its task, and all that have just ended.
CREATE INDEX live_tasks ON live_runs (lane) WHERE lane >= 32768;

-- What an on-demand run was given. NULL for ticks, which costs their rows nothing. Kept in the row and not in a table of its
-- own: for payloads of usual size, a copy in each of the three tables is less WAL than one more row with its index entry.
ALTER TABLE live_runs ADD COLUMN payload jsonb, ADD COLUMN key text;
ALTER TABLE run_history ADD COLUMN payload jsonb, ADD COLUMN key text;

-- Runs in lanes that wait for a place of their concurrency key: until they have one, not_before is infinity.
CREATE INDEX live_unadmitted ON live_runs (key, job) WHERE not_before = 'infinity';

-- Serials of on-demand runs: domain/identity.py ON_DEMAND to MAX_SERIAL. Cyclic: (job, millisecond, serial) is unique, unless
-- 67 million runs later the same millisecond is asked for again; then a primary key refuses it.
CREATE SEQUENCE on_demand_serials AS integer MINVALUE 201326592 MAXVALUE 268435455 CYCLE CACHE 32;

ALTER TABLE cursors
    ADD COLUMN task       boolean NOT NULL DEFAULT false,   -- the job has no schedule: next_tick is always NULL
    ADD COLUMN key_limit  smallint,                         -- at most this many running runs of one concurrency key
    ADD COLUMN key_rate   double precision,                 -- at most this many starts per second of one concurrency key
    ADD COLUMN key_shared boolean NOT NULL DEFAULT false,   -- its keys are those of the tenant, not of the job
    ADD COLUMN key_text   text;                             -- the template of the concurrency key
-- NOT VALID: what is there satisfies the narrower rule before, and ten million rows need not be read to know that.
ALTER TABLE cursors DROP CONSTRAINT cursors_priority_check;
ALTER TABLE cursors ADD CONSTRAINT cursors_priority_check CHECK (priority BETWEEN -100 AND 100) NOT VALID,
    ADD CONSTRAINT cursors_task_check CHECK (NOT task OR next_tick IS NULL) NOT VALID,
    ADD CONSTRAINT cursors_key_check CHECK (key_limit > 0 AND key_rate > 0) NOT VALID;

CREATE TABLE backlog (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,        -- when it is due, in whole milliseconds: part of its id, and its day in history
    not_before   timestamptz NOT NULL,        -- the same; later for a retry, and where the rate of its key delays it
    token        bigint NOT NULL,
    lost_alone   smallint,
    attempt      smallint NOT NULL DEFAULT 1,
    crashes      smallint NOT NULL DEFAULT 0,
    priority     smallint NOT NULL,
    once         boolean NOT NULL DEFAULT false,
    keyed        boolean NOT NULL DEFAULT false,
    parked       boolean NOT NULL DEFAULT false,           -- all places of its key were taken when it was its turn
    paced        boolean NOT NULL DEFAULT false,           -- the rate of its key is counted in its not_before
    wakes        boolean,                                  -- whether its insert notifies the workers; else NULL
    serial       integer NOT NULL,
    queue        integer NOT NULL,
    revision     integer NOT NULL,
    key          text,                                     -- the concurrency key
    payload      jsonb,                                    -- NULL: that of the job
    -- Of numbers only what nothing else checks: each check is read from the catalog with every enqueue, for 2 us.
    CHECK (keyed = (key IS NOT NULL) AND (keyed OR NOT parked AND NOT paced)),
    -- By serial first: picked runs are deleted by one array of integers, and an id is found by one probe.
    PRIMARY KEY (serial, scheduled_at, job)
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 1);
-- By job first: a task that is paused or deleted is skipped as a whole, and none starves the others of its queue.
CREATE INDEX backlog_ready ON backlog (job, queue, keyed, priority, not_before) WHERE NOT parked;
-- In the order of task/unpark: otherwise it would sort all runs of a key.
CREATE INDEX backlog_parked ON backlog (job, key, priority DESC, not_before) WHERE parked;
-- For lists of runs by their time: those that backlog_ready does not have in this order. No enqueue writes to it.
CREATE INDEX backlog_moved ON backlog (job, scheduled_at) WHERE parked OR not_before <> scheduled_at;

-- The holder of a unique key. Settles release nothing: the next enqueue that wants the key checks whether the run of its
-- holder has ended. `taken_by` is the transaction that wrote the row: a holder that a snapshot cannot see has not ended.
CREATE TABLE unique_keys (
    job          bigint NOT NULL,
    key          text NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    until        timestamptz,                 -- taken for a period, whether or not the run has ended
    taken_by     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (job, key)
) WITH (fillfactor = 70);

-- The places of a concurrency key, released in the same way. `scope` is a job, or below zero a tenant whose jobs share keys.
CREATE TABLE key_places (
    scope        bigint NOT NULL,
    key          text NOT NULL,
    place        smallint NOT NULL,
    job          bigint NOT NULL,             -- the live run that has it
    lane         integer NOT NULL,
    scheduled_at timestamptz NOT NULL,
    taken_by     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (scope, key, place)
) WITH (fillfactor = 50);

-- When the next run of a key with a rate may start.
CREATE TABLE key_rates (
    scope   bigint NOT NULL,
    key     text NOT NULL,
    next_at timestamptz NOT NULL,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 50);

-- Which roles of this server may enqueue for which tenants with the functions below.
CREATE TABLE enqueue_grants (
    tenant     integer NOT NULL REFERENCES tenants ON DELETE CASCADE,
    role       name NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, role)
);

-- Every run, finished or not, under one vocabulary. A view that is replaced loses its options, of which `detent db migrate
-- --tenant-role` sets one: it stays. `waiting`: it is in the backlog, which a query with NOT waiting does not read.
SELECT set_config('detent.view_options', coalesce(array_to_string(reloptions, ', '), ''), true) FROM pg_class
 WHERE oid = 'runs'::regclass;
CREATE OR REPLACE VIEW runs AS
SELECT job, scheduled_at, serial,
       CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END AS status,
       CASE WHEN cancel THEN 'cancelling' WHEN not_before = 'infinity' AND lane >= 0 THEN 'waiting for its concurrency key'
       END AS reason, attempt, token, owner AS node, revision,
       started_at, NULL::timestamptz AS finished_at, NULL::text AS result,
       NULL::integer AS ticks, NULL::timestamptz AS until,
       CASE WHEN not_before = 'infinity' THEN scheduled_at ELSE not_before END AS not_before, false AS waiting, key, payload
  FROM live_runs
UNION ALL
SELECT job, scheduled_at, serial,
       CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4 THEN 'skipped' ELSE 'missed' END,
       reason, attempt, token, node, revision, started_at, finished_at, result, ticks, until, NULL, false,
       key, payload
  FROM run_history
UNION ALL
SELECT job, scheduled_at, serial, CASE WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END,
       CASE WHEN parked THEN 'waiting for its concurrency key' END, attempt, token, NULL, revision, NULL, NULL, NULL, NULL, NULL,
       not_before, true, key, payload
  FROM backlog;
DO $$
BEGIN
    IF current_setting('detent.view_options') <> '' THEN
        EXECUTE format('ALTER VIEW runs SET (%s)', current_setting('detent.view_options'));
    END IF;
END $$;

-- Where on-demand runs wait that are not parked, with the time of the first of each, from one to the next through the index.
-- `startable`: they wait for a worker and for nothing else. A job with a schedule has to have a free lane.
CREATE VIEW backlog_heads AS
WITH RECURSIVE heads AS (
    (SELECT job, queue, keyed, priority, not_before FROM backlog WHERE NOT parked
      ORDER BY job, queue, keyed, priority, not_before LIMIT 1)
    UNION ALL
    SELECT next.* FROM heads CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog
         WHERE NOT parked AND (job, queue, keyed, priority) > (heads.job, heads.queue, heads.keyed, heads.priority)
         ORDER BY job, queue, keyed, priority, not_before LIMIT 1) next)
SELECT h.*, j.tenant, c.task AND j.status = 'active' AND h.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
       AND (SELECT held_at IS NULL FROM cluster) AS startable
  FROM heads h
 CROSS JOIN LATERAL (SELECT tenant, status FROM jobs WHERE job = h.job LIMIT 1) j
 CROSS JOIN LATERAL (SELECT task FROM cursors WHERE job = h.job LIMIT 1) c;

-- A hint to the workers, sent when the transaction of an enqueue commits: the trigger is deferred, so that a long transaction
-- of the caller neither notifies too early nor holds the lock for long. NOTIFY takes a lock that all committing transactions
-- share, therefore of those that commit together one notifies. Workers look again shortly after each hint, and by themselves.
-- It has the rights of the schema's owner and whatever search_path the caller has: to set one would cost 8 us for each
-- enqueue. So all names in it have their schema.
DO $create$
BEGIN
    EXECUTE format($function$
CREATE FUNCTION notify_enqueued() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    hint pg_catalog.text := pg_catalog.concat('task:', NEW.job);
    sent pg_catalog.text;
BEGIN
    IF pg_catalog.pg_try_advisory_xact_lock(7361, 21) THEN
        INSERT INTO %1$I.changes (channel, payload)
        SELECT 'detent_runs', hint FROM %1$I.cluster WHERE feed_until OPERATOR(pg_catalog.>) pg_catalog.now();
        sent := pg_catalog.pg_notify('detent_runs', hint);   -- an assignment, unlike PERFORM, needs no plan
    END IF;
    RETURN NULL;
END $$
    $function$, current_schema());
END $create$;
REVOKE ALL ON FUNCTION notify_enqueued() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER notify_enqueued AFTER INSERT ON backlog DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.wakes) EXECUTE FUNCTION notify_enqueued();

-- The concurrency key of a run: its job's template with {{job}} and {{payload.a.b}} filled in, as domain/concurrency.py does.
-- A value that is missing or null is empty.
CREATE FUNCTION rendered_key(template text, job text, payload jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    literals text[] := regexp_split_to_array(template, '\{\{\s*[^{}\s]+\s*\}\}');
    names text[] := ARRAY(SELECT (regexp_matches(template, '\{\{\s*([^{}\s]+)\s*\}\}', 'g'))[1]);
    result text := literals[1];
    value jsonb;
BEGIN
    FOR n IN 1..cardinality(names) LOOP
        value := CASE WHEN names[n] = 'job' THEN to_jsonb(job)
                      ELSE payload #> string_to_array(substr(names[n], length('payload.') + 1), '.') END;
        IF jsonb_typeof(value) IN ('object', 'array') THEN
            RAISE EXCEPTION 'the concurrency key of % needs {{%}} to be a string, a number or a boolean', job, names[n]
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        result := result || coalesce(CASE WHEN jsonb_typeof(value) = 'number' THEN trim_scale(value::numeric)::text
                                          ELSE value #>> '{}' END, '') || literals[n + 1];
    END LOOP;
    RETURN result;
END $$;

CREATE FUNCTION refers_to_secret(payload jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT FROM jsonb_path_query(payload, '$.**') v
                    WHERE jsonb_typeof(v) = 'object' AND jsonb_typeof(v -> 'secret') = 'string' AND v - 'secret' = '{}')
$$;

-- Why a run cannot be enqueued, or NULL.
CREATE FUNCTION enqueue_problem(payload jsonb, at timestamptz, delay interval, priority integer, queue text, unique_key text,
        unique_for interval, concurrency_key text, max_payload bigint, may_refer boolean) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN at IS NOT NULL AND delay IS NOT NULL THEN 'at and delay_seconds are both given: give one of them'
        WHEN coalesce(at, now() + delay) > now() + interval '366 days'
            THEN 'the run would be due more than 366 days ahead: give an earlier time'
        WHEN at < now() - interval '1 day'
            THEN 'at is more than a day in the past: give a later time, or leave it out to run now'
        WHEN delay < interval '0' THEN 'delay_seconds is below zero: give 0 or more'
        WHEN priority NOT BETWEEN -100 AND 100 THEN format('priority is %s: give a number from -100 to 100', priority)
        WHEN length(queue) NOT BETWEEN 1 AND 200 THEN 'queue must have 1 to 200 characters'
        WHEN length(unique_key) NOT BETWEEN 1 AND 200 THEN 'unique_key must have 1 to 200 characters'
        WHEN length(concurrency_key) NOT BETWEEN 1 AND 200 THEN 'concurrency_key must have 1 to 200 characters'
        WHEN unique_for IS NOT NULL AND unique_key IS NULL THEN 'unique_for_seconds is given without unique_key: give both'
        WHEN unique_for NOT BETWEEN interval '0.001 s' AND interval '366 days'
            THEN 'unique_for_seconds must be above zero, and at most 366 days'
        -- As text, a payload has at most six times its bytes as jsonb.
        WHEN pg_column_size(payload) * 6::bigint > max_payload AND octet_length(payload::text) > max_payload
            THEN format('payload has %s bytes, and at most %s are allowed: store the data elsewhere and send a reference',
                        octet_length(payload::text), max_payload)
        WHEN NOT may_refer AND payload @? '$.**.secret' AND refers_to_secret(payload)
            THEN 'payload refers to a secret, which only the API can check: refer to it in the payload of the task'
        END
$$;

-- The number of the queue that on-demand runs of a job wait in. `given`: its name, NULL: that of the job.
CREATE FUNCTION on_demand_queue(of_tenant integer, jobs_queue integer, given text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    wanted_name text;
    wanted_needs text;
    number integer;
BEGIN
    SELECT coalesce(given, q.name), CASE WHEN starts_with(q.needs, 'task:') THEN q.needs ELSE 'task:' || q.needs END
      INTO wanted_name, wanted_needs FROM queues q WHERE q.queue = jobs_queue;
    SELECT q.queue INTO number FROM queues q
     WHERE q.tenant = of_tenant AND q.name = wanted_name AND q.needs = wanted_needs AND q.unused_since IS NULL;
    IF number IS NULL THEN
        INSERT INTO queues AS q (tenant, name, needs) VALUES (of_tenant, wanted_name, wanted_needs)
        ON CONFLICT (tenant, name, needs) DO UPDATE SET unused_since = NULL RETURNING q.queue INTO number;
        -- Otherwise workers would read it with all queues after 20 seconds.
        INSERT INTO changes (channel, payload) SELECT 'detent_runs', 'queues' FROM cluster WHERE feed_until > now();
        PERFORM pg_notify('detent_runs', 'queues');
    END IF;
    RETURN number;
END $$;

-- When a run is due: `at`, after `delay`, or now; a time that has passed is now.
CREATE FUNCTION due_time(at timestamptz, delay interval, present timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN at IS NULL AND delay IS NULL THEN present
                ELSE date_trunc('milliseconds', greatest(coalesce(at, present + delay), present)) END
$$;

-- The concurrency key of a run, NULL if neither its job nor its enqueue asks for one, or the template gives an empty one. A
-- key that is too long is shortened.
CREATE FUNCTION concurrency_key_of(given text, template text, limited boolean, job text, payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN length(k) <= 200 THEN k ELSE left(k, 160) || md5(k) END
      FROM (SELECT coalesce(given, CASE WHEN template IS NOT NULL THEN nullif(rendered_key(template, job, payload), '')
                                        WHEN limited THEN '' END) AS k) wanted
$$;

-- The concurrency key of the ticks of a job, NULL if it asks for none.
CREATE FUNCTION tick_key(of_job bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concurrency_key_of(NULL, c.key_text, true, j.name, j.definition -> 'payload')
      FROM cursors c JOIN jobs j ON j.job = c.job
     WHERE c.job = of_job AND (c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL)
$$;

-- As before, at a tenth of its cost, because the planner can inline it: an enqueue answers with the ids of its runs.
CREATE OR REPLACE FUNCTION run_id(job bigint, at timestamptz, serial integer) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT encode(int8send(((date_part('epoch', at - timestamptz '1970-01-01Z') * 1000)::bigint << 16)
                           | (7 << 12) | (serial >> 16))
               || int8send((2::bigint << 62) | ((serial & 65535)::bigint << 46) | job), 'hex')::uuid
$$;

-- Which of the documents has a value of a wrong type, in the words of the server.
CREATE FUNCTION unreadable_run(runs jsonb, otherwise text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    position bigint;
    each jsonb;
BEGIN
    FOR each, position IN SELECT run, nth FROM jsonb_array_elements(runs) WITH ORDINALITY AS r (run, nth) LOOP
        BEGIN
            PERFORM now() + make_interval(secs => r.delay_seconds), now() + make_interval(secs => r.unique_for_seconds)
               FROM jsonb_to_record(each) AS r (at timestamptz, delay_seconds double precision, priority integer,
                                                unique_for_seconds double precision);
        EXCEPTION WHEN data_exception THEN
            RETURN format('runs[%s]: %s', position - 1, SQLERRM);
        END;
    END LOOP;
    RETURN otherwise;
END $$;

-- Enqueue runs of a job, all or none: `runs` is an array of at most 10,000 documents. Returns a row for each, in their order;
-- where a unique key is taken, the run that has it. It has the rights of its caller: the API calls it. `max_payload` in bytes,
-- NULL: the limit of the tenant.
CREATE FUNCTION enqueue_runs(of_job bigint, runs jsonb, may_refer boolean DEFAULT false, max_payload bigint DEFAULT NULL)
    RETURNS TABLE (run uuid, created boolean, status text, scheduled_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known record;
    refused text;
    plain boolean;                            -- no run has more than a payload
    present timestamptz := date_trunc('milliseconds', clock_timestamp());
    dues timestamptz[];
    serials integer[];
    names text[];
    made boolean[];
BEGIN
    IF jsonb_typeof(runs) IS DISTINCT FROM 'array' OR jsonb_array_length(runs) NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'runs must be an array of 1 to 10,000 documents' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT j.job, j.name, j.tenant, c.queue, c.revision, c.priority, c.once, c.key_text,
           CASE WHEN c.task THEN c.queue ELSE on_demand_queue(j.tenant, c.queue, NULL) END AS own_queue,
           c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL AS limited,
           CASE WHEN c.key_text IS NOT NULL THEN j.definition -> 'payload' END AS payload,
           (SELECT incarnation FROM cluster) << 22 | 1 AS token,
           coalesce(max_payload, t.max_payload_bytes, 1048576) AS max_payload
      INTO known
      FROM jobs j JOIN cursors c ON c.job = j.job JOIN tenants t ON t.tenant = j.tenant
     WHERE j.job = of_job AND j.status <> 'deleted';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the job does not exist, or is deleted' USING ERRCODE = 'undefined_object';
    END IF;
    plain := NOT EXISTS (SELECT FROM jsonb_array_elements(runs) AS r (run)
                          WHERE CASE WHEN jsonb_typeof(r.run) = 'object' THEN r.run - 'payload' <> '{}' ELSE true END);
    IF NOT plain THEN
        SELECT format('runs[%s] must be a document with some of the fields payload, at, delay_seconds, priority, queue, '
                      'unique_key, unique_for_seconds and concurrency_key, and is %s', r.nth - 1, left(r.run::text, 100))
          INTO refused FROM jsonb_array_elements(runs) WITH ORDINALITY AS r (run, nth)
         WHERE CASE WHEN jsonb_typeof(r.run) <> 'object' THEN true
                    ELSE r.run - ARRAY['payload', 'at', 'delay_seconds', 'priority', 'queue', 'unique_key', 'unique_for_seconds',
                                       'concurrency_key'] <> '{}' END
         ORDER BY r.nth LIMIT 1;
    END IF;
    -- The checks cost more than the insert, and are left out where they cannot find anything.
    IF refused IS NULL AND (NOT plain OR pg_column_size(runs) * 6::bigint > known.max_payload
                            OR NOT may_refer AND runs @? '$[*].payload.**.secret') THEN
BEGIN
            SELECT item || p.problem INTO refused
              FROM ROWS FROM (jsonb_array_elements(runs), jsonb_to_recordset(runs) AS (at timestamptz,
                       delay_seconds double precision, priority integer, queue text, unique_key text,
                       unique_for_seconds double precision, concurrency_key text))
                   WITH ORDINALITY AS r (run, at, delay_seconds, priority, queue, unique_key, unique_for_seconds,
                                         concurrency_key, nth)
             CROSS JOIN LATERAL (SELECT CASE WHEN jsonb_array_length(runs) > 1 THEN format('runs[%s]: ', r.nth - 1) ELSE '' END
                                ) AS n (item)
             CROSS JOIN LATERAL enqueue_problem(r.run -> 'payload', r.at, make_interval(secs => r.delay_seconds), r.priority,
                       r.queue, r.unique_key, make_interval(secs => r.unique_for_seconds), r.concurrency_key,
                       known.max_payload, may_refer) AS p (problem)
             WHERE p.problem IS NOT NULL ORDER BY r.nth LIMIT 1;
        EXCEPTION WHEN data_exception THEN
            refused := unreadable_run(runs, SQLERRM);
        END;
    END IF;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION '%', refused USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF plain THEN
        RETURN QUERY
        WITH wanted AS MATERIALIZED (
            SELECT r.nth, r.run -> 'payload' AS payload, nextval('on_demand_serials')::integer AS serial,
                   CASE WHEN known.limited OR known.key_text IS NOT NULL
                        THEN concurrency_key_of(NULL, known.key_text, known.limited, known.name,
                                                coalesce(r.run -> 'payload', known.payload)) END AS key
              FROM jsonb_array_elements(runs) WITH ORDINALITY AS r (run, nth)),
        added AS (
            INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, keyed, wakes, key,
                                 payload)
            SELECT known.job, present, present, known.token, serial, known.own_queue, known.revision, known.priority, known.once,
                   key IS NOT NULL, CASE WHEN nth = 1 THEN true END, key, payload
              FROM wanted)
        SELECT run_id(known.job, present, serial), true, 'pending', present FROM wanted ORDER BY nth;
        RETURN;
    END IF;
    WITH wanted AS MATERIALIZED (
        SELECT r.nth, r.run -> 'payload' AS payload, r.priority, r.unique_key, r.unique_for_seconds,
               due_time(r.at, make_interval(secs => r.delay_seconds), present) AS due,
               nextval('on_demand_serials')::integer AS serial,
               CASE WHEN r.queue IS NULL THEN known.own_queue
                    ELSE on_demand_queue(known.tenant, known.queue, r.queue) END AS queue,
               concurrency_key_of(r.concurrency_key, known.key_text, known.limited, known.name,
                                  coalesce(r.run -> 'payload', known.payload)) AS key,
               -- Of those with one unique key in one call, the first is created.
               CASE WHEN r.unique_key IS NOT NULL
                    THEN row_number() OVER (PARTITION BY r.unique_key ORDER BY r.nth) END AS rank
          FROM ROWS FROM (jsonb_array_elements(runs), jsonb_to_recordset(runs) AS (at timestamptz, delay_seconds double precision,
                   priority integer, queue text, unique_key text, unique_for_seconds double precision, concurrency_key text))
               WITH ORDINALITY AS r (run, at, delay_seconds, priority, queue, unique_key, unique_for_seconds, concurrency_key,
                                     nth)),
    -- Keys are locked in their order. The second of two transactions that want one waits here for the first to commit.
    taken AS (
        INSERT INTO unique_keys AS k (job, key, scheduled_at, serial, until)
        SELECT known.job, unique_key, due, serial, present + make_interval(secs => unique_for_seconds)
          FROM wanted WHERE rank = 1 ORDER BY unique_key
        ON CONFLICT (job, key) DO UPDATE
           SET scheduled_at = excluded.scheduled_at, serial = excluded.serial, until = excluded.until,
               taken_by = pg_current_xact_id()
         WHERE (k.until IS NULL OR k.until <= clock_timestamp())
           AND k.taken_by <> pg_current_xact_id() AND pg_visible_in_snapshot(k.taken_by, pg_current_snapshot())
           -- OFFSET 0: probes, and never a hash table of all that waits.
           AND NOT EXISTS (SELECT FROM backlog b WHERE b.serial = k.serial AND b.scheduled_at = k.scheduled_at AND b.job = k.job
                           OFFSET 0)
           AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.serial AND r.scheduled_at = k.scheduled_at
                           OFFSET 0)
           AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = k.job AND r.lane < 32768 AND r.serial = k.serial
                              AND r.scheduled_at = k.scheduled_at OFFSET 0)
        RETURNING k.serial),
    added AS (
        INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, keyed, wakes, key,
                             payload)
        SELECT known.job, due, due, known.token, serial, queue, known.revision, coalesce(priority, known.priority), known.once,
               key IS NOT NULL, CASE WHEN row_number() OVER () = 1 THEN true END, key, payload
          FROM wanted WHERE rank IS NULL OR serial IN (SELECT serial FROM taken)
        RETURNING serial)
    SELECT array_agg(due ORDER BY nth), array_agg(serial ORDER BY nth), array_agg(unique_key ORDER BY nth),
           array_agg(serial IN (SELECT serial FROM added) ORDER BY nth)
      INTO dues, serials, names, made FROM wanted;
    IF true = ALL (made) THEN
        RETURN QUERY SELECT run_id(known.job, r.due, r.serial), true, 'pending', r.due
          FROM unnest(dues, serials) WITH ORDINALITY AS r (due, serial, nth) ORDER BY r.nth;
        RETURN;
    END IF;
    -- A statement of its own: it sees the holders of keys that committed after the statement before began.
    RETURN QUERY
    SELECT run_id(known.job, h.at, h.serial), r.made,
           -- The status as the view `runs` has it, by probes: through the view, each would read all live runs of the job,
           -- and the index entries of those that have ended. NULL: history no longer has the run.
           CASE WHEN r.made THEN 'pending' ELSE coalesce(
               (SELECT CASE WHEN b.attempt > 1 OR b.crashes > 0 THEN 'retrying' ELSE 'pending' END FROM backlog b
                 WHERE b.serial = h.serial AND b.scheduled_at = h.at AND b.job = known.job),
               (SELECT CASE WHEN l.owner IS NOT NULL THEN 'running' WHEN l.attempt > 1 OR l.crashes > 0 THEN 'retrying'
                            ELSE 'pending' END FROM live_runs l
                 WHERE l.job = known.job AND l.lane = h.serial AND l.scheduled_at = h.at),
               (SELECT CASE WHEN l.owner IS NOT NULL THEN 'running' WHEN l.attempt > 1 OR l.crashes > 0 THEN 'retrying'
                            ELSE 'pending' END FROM live_runs l
                 WHERE l.job = known.job AND l.lane < 32768 AND l.serial = h.serial AND l.scheduled_at = h.at),
               (SELECT CASE o.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled'
                                     WHEN 4 THEN 'skipped' ELSE 'missed' END FROM run_history o
                 WHERE o.job = known.job AND o.scheduled_at = h.at AND o.serial = h.serial)) END,
           h.at
      FROM unnest(dues, serials, names, made) WITH ORDINALITY AS r (due, serial, name, made, nth)
      LEFT JOIN LATERAL (            -- a probe for each, however many keys the job has
        SELECT scheduled_at, serial FROM unique_keys WHERE NOT r.made AND job = known.job AND key = r.name LIMIT 1) k ON true
     CROSS JOIN LATERAL (SELECT coalesce(k.scheduled_at, r.due) AS at, coalesce(k.serial, r.serial) AS serial) h
     ORDER BY r.nth;
END $$;

-- The job that a role of this server may enqueue, by its name; the functions below belong to the owner of the schema, and
-- run with its rights. The caller is the role that is set, or else the one that connected.
CREATE FUNCTION enqueued_job(task text, for_tenant text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    found record;
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    SELECT t.tenant, (SELECT j.job FROM jobs j WHERE j.tenant = t.tenant AND j.name = task
                                         AND j.status <> 'deleted') AS job INTO found
      FROM tenants t WHERE t.name = for_tenant;
    IF found.tenant IS NULL OR NOT pg_has_role(caller, current_user, 'MEMBER') AND NOT EXISTS (
            SELECT FROM enqueue_grants g JOIN pg_roles r ON r.rolname = g.role
             WHERE g.tenant = found.tenant AND pg_has_role(caller, r.oid, 'MEMBER')) THEN
        RAISE EXCEPTION 'the role % may not enqueue for the tenant %: an operator grants it with "detent tenant grant-enqueue"',
            caller, for_tenant USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF found.job IS NULL THEN
        RAISE EXCEPTION 'the tenant % has no task or job named %: create it first', for_tenant, task
            USING ERRCODE = 'undefined_object';
    END IF;
    IF EXISTS (SELECT FROM nodes n WHERE NOT n.evicted AND coalesce(n.knows, 0) < 21) THEN
        RAISE EXCEPTION 'runs cannot be enqueued while a node of an older version is in the cluster: upgrade all nodes first'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN found.job;
END $$;

CREATE FUNCTION enqueue_many(task text, runs jsonb, tenant text DEFAULT 'default')
    RETURNS TABLE (run uuid, created boolean, status text, scheduled_at timestamptz) LANGUAGE sql AS $$
    SELECT * FROM enqueue_runs(enqueued_job(task, tenant), runs)
$$;

-- One run. Without keys and without a queue of its own, which is the usual case, it needs few statements.
CREATE FUNCTION enqueue(task text, payload jsonb DEFAULT NULL, at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
        priority integer DEFAULT NULL, queue text DEFAULT NULL, unique_key text DEFAULT NULL, unique_for interval DEFAULT NULL,
        concurrency_key text DEFAULT NULL, tenant text DEFAULT 'default',
        OUT run uuid, OUT created boolean, OUT status text, OUT scheduled_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    known record;
    refused text;
    serial integer;
BEGIN
    -- What is mostly wanted, in one statement: a run of a task, due now, with nothing but a payload.
    IF caller = current_user AND num_nonnulls($3, $4, $5, $6, $7, $8, $9) = 0 AND ($2 @? '$.**.secret') IS NOT TRUE THEN
        INSERT INTO backlog AS b (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, wakes, payload)
        SELECT j.job, p.present, p.present, (k.incarnation << 22) | 1, nextval('on_demand_serials'), c.queue, c.revision,
               c.priority, c.once, true, $2
          FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS present) p, cluster k,
               tenants t JOIN jobs j ON j.tenant = t.tenant JOIN cursors c ON c.job = j.job
         WHERE t.name = $10 AND j.name = $1 AND j.status <> 'deleted' AND c.task
           AND num_nonnulls(c.key_limit, c.key_rate, c.key_text) = 0
           AND ($2 IS NULL OR pg_column_size($2) * 6::bigint <= coalesce(t.max_payload_bytes, 1048576))
           AND NOT EXISTS (SELECT FROM nodes n WHERE NOT n.evicted AND coalesce(n.knows, 0) < 21)
        RETURNING run_id(b.job, b.scheduled_at, b.serial), b.scheduled_at INTO run, scheduled_at;
        IF FOUND THEN
            created := true;
            status := 'pending';
            RETURN;
        END IF;
    END IF;
    SELECT j.job, c.queue, c.task, c.revision, c.priority, c.once, num_nonnulls(c.key_limit, c.key_rate, c.key_text) > 0 AS keyed,
           (k.incarnation << 22) | 1 AS token, coalesce(t.max_payload_bytes, 1048576) AS max_payload,
           EXISTS (SELECT FROM nodes n WHERE NOT n.evicted AND coalesce(n.knows, 0) < 21) AS older INTO known
      FROM cluster k, tenants t JOIN jobs j ON j.tenant = t.tenant JOIN cursors c ON c.job = j.job
     WHERE t.name = $10 AND j.name = $1 AND j.status <> 'deleted';
    IF NOT FOUND OR known.older OR session_user <> current_user OR current_setting('role') <> 'none' THEN
        PERFORM enqueued_job($1, $10);        -- raises what is wrong
    END IF;
    IF known.keyed OR NOT known.task OR num_nonnulls($6, $7, $8, $9) > 0 THEN
        SELECT r.run, r.created, r.status, r.scheduled_at INTO run, created, status, scheduled_at
          FROM enqueue_runs(known.job, jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
                   'at', $3, 'delay_seconds', extract(epoch FROM $4), 'priority', $5, 'queue', $6, 'unique_key', $7,
                   'unique_for_seconds', extract(epoch FROM $8), 'concurrency_key', $9))
                   || CASE WHEN $2 IS NULL THEN '{}' ELSE jsonb_build_object('payload', $2) END)) AS r;
        RETURN;
    END IF;
    scheduled_at := date_trunc('milliseconds', clock_timestamp());
    IF num_nonnulls($3, $4, $5) > 0 OR pg_column_size($2) * 6::bigint > known.max_payload OR $2 @? '$.**.secret' THEN
        refused := enqueue_problem($2, $3, $4, $5, NULL, NULL, NULL, NULL, known.max_payload, false);
        IF refused IS NOT NULL THEN
            RAISE EXCEPTION '%', refused USING ERRCODE = 'invalid_parameter_value';
        END IF;
        scheduled_at := due_time($3, $4, scheduled_at);
    END IF;
    serial := nextval('on_demand_serials');
    INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, wakes, payload)
    VALUES (known.job, scheduled_at, scheduled_at, known.token, serial, known.queue, known.revision,
            coalesce($5, known.priority), known.once, true, $2);
    run := run_id(known.job, scheduled_at, serial);
    created := true;
    status := 'pending';
END $$;

-- Permit a role of this server to call enqueue and enqueue_many; for which tenants, enqueue_grants says. Returns the
-- statements that only the owner of the schema can execute, where that is another role.
CREATE FUNCTION grant_enqueue(to_role text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    usage_grant text := format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), to_role);
BEGIN
    EXECUTE format('GRANT EXECUTE ON FUNCTION enqueue, enqueue_many TO %I', to_role);
    IF has_schema_privilege(to_role, current_schema(), 'USAGE') THEN
        RETURN '{}';
    END IF;
    BEGIN
        EXECUTE usage_grant;
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN ARRAY[usage_grant];
    END;
    RETURN CASE WHEN has_schema_privilege(to_role, current_schema(), 'USAGE') THEN '{}' ELSE ARRAY[usage_grant] END;
END $$;

-- The role keeps USAGE of the schema: alone it permits nothing, and the role may have it for another reason.
CREATE FUNCTION revoke_enqueue(from_role text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('REVOKE EXECUTE ON FUNCTION enqueue, enqueue_many FROM %I', from_role);
END $$;

DO $$
DECLARE
    signature text;
BEGIN
    -- Of the schema's owner: they are granted to roles that see none of its tables, and nodes own nothing.
    FOREACH signature IN ARRAY ARRAY['grant_enqueue(text)', 'revoke_enqueue(text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', signature, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    END LOOP;
    -- A session keeps a plan that it made while nothing waited. With sequential scans, which cost nothing then, an enqueue
    -- with unique keys later read the whole backlog for each key.
    FOREACH signature IN ARRAY ARRAY[
        'enqueue(text, jsonb, timestamptz, interval, integer, text, text, interval, text, text)',
        'enqueue_many(text, jsonb, text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp '
                       'SET plan_cache_mode = force_generic_plan SET enable_seqscan = off', signature, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    END LOOP;
END $$;
