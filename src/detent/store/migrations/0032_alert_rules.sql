-- detent: compatible with 0009
-- Alert rules: which events of a tenant's jobs are reported to which receiver, and the alerts and messages made of them.
--
-- Nodes of older releases go on next to this: triggers note the events there too, and the nodes of this release send them.

-- All locks first, as in 0021.
DO $$
DECLARE
    usual_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR attempt IN 1..300 LOOP
        BEGIN
            LOCK TABLE jobs, incidents, notices, run_history IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', usual_timeout, true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_sleep(random() / 10);
        END;
    END LOOP;
    RAISE EXCEPTION 'another program holds locks on the tables of detent: end its transactions, then try again'
        USING ERRCODE = 'lock_not_available';
END $$;

CREATE TABLE alert_rules (
    rule       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     integer NOT NULL REFERENCES tenants,
    name       text NOT NULL,
    definition jsonb NOT NULL,                -- without the name and without defaults
    events     text[] NOT NULL,               -- of the definition, for the triggers below; empty: the rule is disabled
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text,
    UNIQUE (tenant, name)
);

-- What happened to jobs for which there is a rule, until a node adds it to the alerts of the matching rules. One row for each
-- job, kind and transaction: a transaction counts in its own row only, so that no transaction waits for another one, and a
-- thousand runs that die together are one row.
CREATE TABLE alert_events (
    event      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        bigint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('dead', 'deadline', 'paused')),
    written_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    events     integer NOT NULL DEFAULT 1,
    made_at    timestamptz NOT NULL DEFAULT now(),
    tick       timestamptz,                   -- of the last run or tick it is about
    serial     integer,
    detail     text
) WITH (fillfactor = 70);
CREATE INDEX alert_events_of_transaction ON alert_events (written_by, job, kind);

-- What a rule reports, from its first event to the recovery of all jobs in it. Changed only under a lock on its rule.
CREATE TABLE alerts (
    alert           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          integer NOT NULL REFERENCES tenants,
    rule            bigint NOT NULL,
    only_job        bigint,                   -- where the rule has an alert for each job; NULL: it is about all jobs
    severity        smallint NOT NULL,        -- the highest so far: 0 info, 1 warning, 2 error, 3 critical
    events          bigint NOT NULL,
    untracked       bigint NOT NULL DEFAULT 0,          -- events of jobs beyond the largest number in one alert
    fresh_untracked bigint NOT NULL DEFAULT 0,          -- of these, since the last message
    messages        integer NOT NULL DEFAULT 0,
    opened_at       timestamptz NOT NULL DEFAULT now(),
    last_message_at timestamptz,
    flush_at        timestamptz NOT NULL,     -- when the next message may be made; infinity: nothing is to be said
    calm            boolean NOT NULL DEFAULT false,     -- all jobs had recovered when flush_at was set
    closed_at       timestamptz
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX alerts_open ON alerts (rule, coalesce(only_job, 0)) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_rule ON alerts (rule, alert);
CREATE INDEX alerts_closed ON alerts (closed_at) WHERE closed_at IS NOT NULL;

-- The jobs of open alerts, up to a number for each alert.
CREATE TABLE alert_jobs (
    alert        bigint NOT NULL,
    job          bigint NOT NULL,
    kind         text NOT NULL,
    events       bigint NOT NULL,
    fresh        bigint NOT NULL,             -- since the last message
    first_at     timestamptz NOT NULL DEFAULT now(),
    last_at      timestamptz NOT NULL,
    tick         timestamptz,
    serial       integer,
    detail       text,
    recovered_at timestamptz,
    check_at     timestamptz NOT NULL DEFAULT now(),    -- when to look next whether it has recovered
    PRIMARY KEY (alert, job, kind)
) WITH (fillfactor = 70);
CREATE INDEX alert_jobs_to_check ON alert_jobs (check_at) WHERE recovered_at IS NULL;
CREATE INDEX alert_jobs_of_job ON alert_jobs (job);

-- Messages of rules wait, are sent and given up as those about incidents are. `content` is what the message says, fixed when it
-- is made, so that every try sends the same. Older nodes take only messages that have an incident.
ALTER TABLE notices
    ALTER COLUMN incident DROP NOT NULL,
    ADD COLUMN rule bigint,
    ADD COLUMN alert bigint,                  -- NULL in a message of a rule: a test
    ADD COLUMN content jsonb,
    DROP CONSTRAINT notices_event_check,
    ADD CONSTRAINT notices_event_check
        CHECK (event IN ('missed', 'recovered', 'opened', 'continued', 'passed', 'test')),
    ADD CONSTRAINT notices_subject_check CHECK (num_nonnulls(incident, rule) = 1);
CREATE INDEX notices_of_rule ON notices (rule, notice) WHERE rule IS NOT NULL;
CREATE INDEX notices_of_alert ON notices (alert) WHERE alert IS NOT NULL;

-- Count an event of a job, if a rule of its tenant asks for one of these kinds.
CREATE FUNCTION note_alert_event(
    its_job bigint, its_kind text, asked_as text[], its_tick timestamptz, its_serial integer, its_detail text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM alert_rules WHERE events && asked_as) THEN
        RETURN;
    END IF;
    UPDATE alert_events SET events = events + 1, tick = its_tick, serial = its_serial, detail = its_detail
     WHERE written_by = pg_current_xact_id() AND job = its_job AND kind = its_kind;
    IF NOT FOUND THEN
        INSERT INTO alert_events (job, kind, tick, serial, detail)
        SELECT its_job, its_kind, its_tick, its_serial, its_detail
         WHERE EXISTS (
            SELECT FROM alert_rules r JOIN jobs j USING (tenant) WHERE j.job = its_job AND r.events && asked_as);
    END IF;
END $$;

CREATE FUNCTION note_dead_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_alert_event(NEW.job, 'dead', '{dead,failures}', NEW.scheduled_at, NEW.serial, NEW.reason);
    RETURN NULL;
END $$;

CREATE FUNCTION note_missed_deadline() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_alert_event(NEW.job, 'deadline', '{deadline}', NEW.tick, 0, NEW.kind);
    RETURN NULL;
END $$;

CREATE FUNCTION note_automatic_pause() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_alert_event(NEW.job, 'paused', '{paused}', NULL, NULL, NEW.reason);
    RETURN NULL;
END $$;

-- These three write with the rights of the owner, as note_dead_letter does, and so does the function that they call.
DO $$
DECLARE
    each text;
BEGIN
    FOREACH each IN ARRAY ARRAY['note_dead_run()', 'note_missed_deadline()', 'note_automatic_pause()'] LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', each, current_schema());
    END LOOP;
END $$;

-- Status 2 is dead. For all other rows, the condition of the trigger is all that is added.
CREATE TRIGGER note_dead_run AFTER INSERT ON run_history
    FOR EACH ROW WHEN (NEW.status = 2) EXECUTE FUNCTION note_dead_run();
CREATE TRIGGER note_missed_deadline AFTER INSERT ON incidents
    FOR EACH ROW EXECUTE FUNCTION note_missed_deadline();
-- Paused by a node: its target answered 410, or too many of its runs died.
CREATE TRIGGER note_automatic_pause AFTER UPDATE OF status ON jobs
    FOR EACH ROW WHEN (NEW.status = 'paused' AND OLD.status <> 'paused' AND NEW.opened_by = 'detent')
    EXECUTE FUNCTION note_automatic_pause();
