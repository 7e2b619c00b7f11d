-- detent: compatible with 0009
-- Dead runs that are to be forwarded to a topic.
--
-- Nodes of older releases go on next to this: the runs that die there are noted too, because history notes them itself.

-- All locks first, as in 0021.
DO $$
DECLARE
    usual_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR attempt IN 1..300 LOOP
        BEGIN
            LOCK TABLE tenants, run_history IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', usual_timeout, true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_sleep(random() / 10);
        END;
    END LOOP;
    RAISE EXCEPTION 'another program holds locks on the tables of detent: end its transactions, then try again'
        USING ERRCODE = 'lock_not_available';
END $$;

-- Where the dead runs of its jobs go that name no topic themselves: the members of a topic target.
ALTER TABLE tenants ADD COLUMN dead_letter_topic jsonb;

-- What is needed of the run is copied, because its row leaves history when it is revived. A run that dies again has a higher
-- token, and is forwarded again. A row is deleted when the broker has acknowledged its message.
CREATE TABLE dead_letters (
    letter       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    token        bigint NOT NULL,
    revision     integer NOT NULL,
    attempt      smallint NOT NULL,
    reason       text,
    finished_at  timestamptz NOT NULL,
    payload      jsonb,                       -- of the run, where it has one of its own
    made_at      timestamptz NOT NULL DEFAULT now(),
    due_at       timestamptz NOT NULL DEFAULT now(),     -- while a node sends it: when another one may take it
    tries        integer NOT NULL DEFAULT 0,
    error        text,                        -- of the last try
    UNIQUE (job, scheduled_at, serial, token)
);
CREATE INDEX dead_letters_due ON dead_letters (due_at);

-- In the transaction in which the run dies, whichever statement writes it. Status 2 is dead. For all other rows, the condition
-- of the trigger is all that is added. It writes with the rights of the owner: nodes that run while this is migrated have a
-- role that gets its privileges afterwards, and their runs still end.
CREATE FUNCTION note_dead_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_letters (job, scheduled_at, serial, token, revision, attempt, reason, finished_at, payload)
    SELECT NEW.job, NEW.scheduled_at, NEW.serial, NEW.token, NEW.revision, NEW.attempt, NEW.reason, NEW.finished_at, NEW.payload
      FROM jobs j JOIN tenants t USING (tenant)
     WHERE j.job = NEW.job AND (j.definition ? 'dead_letter_topic' OR t.dead_letter_topic IS NOT NULL)
    ON CONFLICT (job, scheduled_at, serial, token) DO NOTHING;
    RETURN NULL;
END $$;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION note_dead_letter() SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END $$;

CREATE TRIGGER note_dead_letter AFTER INSERT ON run_history
    FOR EACH ROW WHEN (NEW.status = 2) EXECUTE FUNCTION note_dead_letter();
