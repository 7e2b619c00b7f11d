-- Policies and the ledger: what happens to ticks that are late, who changed a job and when, and from which spans of which
-- schedule the ticks of a job are to be expected.

ALTER TABLE cursors
    ADD COLUMN missed     smallint NOT NULL DEFAULT 1 CHECK (missed BETWEEN 1 AND 3),   -- 1 RUN_ONCE, 2 SKIP, 3 RUN_ALL
    ADD COLUMN max_missed integer NOT NULL DEFAULT 100 CHECK (max_missed >= 0);

-- Missed ticks that are still to run (RUN_ALL), and backfills: a range of its own beside the live cursor, with its own
-- compare-and-set on next_tick. Released at a rate, and never before ticks that are due now. The ticks are those of the
-- schedule at the time, whatever becomes of the job's; what they run is the job as it is when they are released.
CREATE TABLE catchups (
    catchup    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        bigint NOT NULL,
    partition  smallint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('missed', 'backfill')),
    schedule   integer NOT NULL,
    since      timestamptz NOT NULL,          -- the first tick of the range
    until      timestamptz NOT NULL,          -- the last
    next_tick  timestamptz NOT NULL,          -- the one to be released next
    left_over  integer NOT NULL CHECK (left_over > 0),      -- how many ticks are still to be released
    concurrent smallint NOT NULL DEFAULT 1 CHECK (concurrent > 0),      -- how many may be under way at once
    descending boolean NOT NULL DEFAULT false,              -- latest first
    reprocess  boolean NOT NULL DEFAULT false,              -- run ticks again that ran before, under a new serial
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text,
    CHECK (next_tick BETWEEN since AND until)
) WITH (fillfactor = 70);
CREATE INDEX catchups_due ON catchups (partition, catchup);
CREATE INDEX catchups_job ON catchups (job);

-- Dead runs that nobody has dealt with: those that were discarded are listed no more.
DROP INDEX run_history_dead;
CREATE INDEX run_history_dead ON run_history (scheduled_at, job, serial) WHERE status = 2 AND reason IS DISTINCT FROM 'discarded';

-- What errors have in common: their first line, without what differs from run to run. Addresses, ids and numbers are left
-- out, but for those that say what kind of error it is: the status of an answer or of a command.
CREATE FUNCTION error_pattern(error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
        left(split_part(error, E'\n', 1), 500),
        '\m[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<address>', 'gi'),
        '\m[\w.+-]+@[\w-]+(\.[\w-]+)+\M', '<address>', 'g'),
        '\m\d{1,3}(\.\d{1,3}){3}(:\d+)?\M|\[?\m[0-9a-f]{0,4}(:[0-9a-f]{0,4}){3,7}\M(\]:\d+)?', '<address>', 'gi'),
        '\m[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\M|\m0x[0-9a-f]+\M|\m(?=\w*\d)[0-9a-f]{8,}\M', '<id>', 'gi'),
        '(?<!\m(HTTP|status) \d*)\d+(\.\d+)*', '<n>', 'gi')
$$;
CREATE FUNCTION error_group(error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(md5(error_pattern(error)), 12)
$$;
CREATE FUNCTION dead_group(run run_history) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT error_group(coalesce((
        SELECT a.error FROM attempts a
         WHERE a.job = run.job AND a.scheduled_at = run.scheduled_at AND a.serial = run.serial AND a.token = run.token), run.reason, ''))
$$;

-- From which span of which schedule ticks were to be expected. A tick at t belongs to the span with since < t <= until.
-- Here are the spans that are over, written by the change that ended them; the present one of each job is in its own
-- row, so that registering a job writes nothing more. The anchor of an interval and the instant of a one-off are what
-- the shared row of the schedule lacks; tzdata is NULL where no zone data has a say.
CREATE TABLE segments (
    job       bigint NOT NULL,
    since     timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    schedule  integer NOT NULL,
    anchor    timestamptz,
    tzdata    text,
    opened    text NOT NULL,                  -- created, edited, paused, resumed, zone data; backfill: in it runs may be
    opened_by text,
    reason    text,                           -- why it was paused
    closed    text NOT NULL,                  -- edited, paused, resumed, deleted, zone data, backfill
    closed_by text,
    CHECK (until > since),
    PRIMARY KEY (job, since)
);

-- Single occurrences that are not to run, until then or until this is undone.
CREATE TABLE skips (
    job        bigint NOT NULL,
    tick       timestamptz NOT NULL,
    reason     text,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text,
    PRIMARY KEY (job, tick)
);

-- The payload of a run that was triggered with one of its own; its repeats have it too.
CREATE TABLE run_payloads (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    payload      jsonb NOT NULL,
    PRIMARY KEY (job, scheduled_at)
);

-- Some of the job's occurrences are in `skips`: its fires look there.
ALTER TABLE cursors ADD COLUMN skips boolean NOT NULL DEFAULT false;

ALTER TABLE jobs
    ADD COLUMN paused_until timestamptz,
    ADD COLUMN on_resume    text CHECK (on_resume IN ('skip', 'once', 'all')),
    ADD COLUMN collect_at   timestamptz,                    -- when a one-off that is completed is deleted
    ADD COLUMN changed_by   text,                           -- who made the present revision,
    ADD COLUMN revised_at   timestamptz,                    -- and when; NULL: with the job
    -- The present span, as in `segments`.
    ADD COLUMN since        timestamptz,                    -- NULL: since the job was made
    ADD COLUMN opened       text,                           -- NULL: created
    ADD COLUMN opened_by    text,
    ADD COLUMN anchor       timestamptz,
    ADD COLUMN tzdata       text;
CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_collect_at ON jobs (collect_at) WHERE collect_at IS NOT NULL;

ALTER TABLE job_revisions
    ADD COLUMN changed_by text,
    ADD COLUMN made_at    timestamptz;

-- The release of the zone data by which all next ticks were last looked at again.
ALTER TABLE cluster ADD COLUMN tzdata text;

-- When a completed job is deleted: only a one-off is, so many seconds after its end.
CREATE FUNCTION collection_of(definition jsonb, schedule integer) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT now() + make_interval(secs => coalesce((definition->>'collect_after')::double precision, 604800))
      FROM schedules s WHERE s.schedule = $2 AND s.stored->>'kind' = 'once'
$$;

-- Every span of every job, over or not. What is to come after the last run of a bounded job is not expected.
CREATE VIEW spans AS
SELECT job, since, until, schedule, anchor, tzdata, opened, opened_by, reason, closed, closed_by FROM segments
UNION ALL
SELECT j.job, coalesce(j.since, j.created_at), CASE WHEN c.runs_left = 0 THEN greatest(c.last_tick, j.since, j.created_at) END,
       c.schedule, j.anchor, j.tzdata, coalesce(j.opened, 'created'), j.opened_by, j.reason, NULL, NULL
  FROM jobs j JOIN cursors c USING (job) WHERE j.status <> 'deleted';
