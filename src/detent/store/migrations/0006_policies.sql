-- Policies and the ledger: what happens to ticks that are late, who changed a job and when, and from which spans of which
-- schedule the ticks of a job are to be expected.

ALTER TABLE cursors
    ADD COLUMN missed     smallint NOT NULL DEFAULT 1 CHECK (missed BETWEEN 1 AND 3),   -- 1 RUN_ONCE, 2 SKIP, 3 RUN_ALL
    ADD COLUMN max_missed integer NOT NULL DEFAULT 100 CHECK (max_missed >= 0);

-- Missed ticks that are still to run (RUN_ALL), and backfills: a range of its own beside the live cursor, with its own
-- compare-and-set on next_tick. Released at a rate, and never before ticks that are due now.
CREATE TABLE catchups (
    catchup    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        bigint NOT NULL,
    partition  smallint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('missed', 'backfill')),
    next_tick  timestamptz NOT NULL,
    until      timestamptz NOT NULL,          -- the last tick of the range
    left_over  integer NOT NULL CHECK (left_over > 0),      -- how many ticks are still to be released
    concurrent smallint NOT NULL DEFAULT 1 CHECK (concurrent > 0),
    descending boolean NOT NULL DEFAULT false,              -- latest first
    reprocess  boolean NOT NULL DEFAULT false,              -- run ticks again that ran before, under a new serial
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text
);
CREATE INDEX catchups_due ON catchups (partition, catchup);
CREATE INDEX catchups_job ON catchups (job);

-- From which span of which schedule ticks were to be expected: opened and closed by the change itself, in its transaction.
-- A tick at t belongs to the segment with since < t <= until (until NULL: the present one).
CREATE TABLE segments (
    job      bigint NOT NULL,
    since    timestamptz NOT NULL,
    until    timestamptz,
    schedule integer NOT NULL,
    revision integer NOT NULL,
    tzdata   text NOT NULL,
    opened   text NOT NULL,                   -- created, edited, resumed, zone data
    closed   text,                            -- edited, paused, completed, deleted, zone data
    CHECK (until >= since),
    CHECK ((until IS NULL) = (closed IS NULL)),
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

ALTER TABLE jobs
    ADD COLUMN paused_until timestamptz,
    ADD COLUMN on_resume    text CHECK (on_resume IN ('skip', 'once', 'all')),
    ADD COLUMN dead_streak  integer NOT NULL DEFAULT 0,     -- dead runs in a row, counted by the settle that makes one
    ADD COLUMN changed_by   text;                           -- who made the present revision
CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL;

ALTER TABLE job_revisions
    ADD COLUMN changed_by text,
    ADD COLUMN made_at    timestamptz;
