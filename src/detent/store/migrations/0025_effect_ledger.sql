-- detent: compatible with 0009
-- What handlers have done already: the steps of a run, and effects that happen once per key.
--
-- Nodes of older releases go on next to this: their handlers have no steps and no keys.

-- Results of the steps of a run, which its next attempt does not repeat. Not in live_runs, whose rows every claim and
-- settle rewrites. No settle touches this table: the housekeeping removes the steps of runs that have ended, and keeps
-- those of dead runs, which may be retried.
CREATE TABLE run_steps (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    name         text NOT NULL,
    number       bigint GENERATED ALWAYS AS IDENTITY,      -- the order in which they were stored
    attempt      smallint NOT NULL,
    token        bigint NOT NULL,
    stored_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    took         interval NOT NULL,
    result       text,                        -- JSON; NULL: the step returned nothing
    PRIMARY KEY (job, scheduled_at, serial, name)
);

-- Effects that have happened. `scope` is a job, or below zero the tenant whose jobs share the key, as in key_places.
-- The run is the one that did it.
CREATE TABLE effect_marks (
    scope        bigint NOT NULL,
    key          text NOT NULL,
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    done_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept_until   timestamptz NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX effect_marks_kept_until ON effect_marks (kept_until);
