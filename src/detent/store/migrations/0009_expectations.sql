-- What jobs are expected to do, when somebody has to be told that they did not, and the messages that say so.

-- One row for each expectation of a job that has any; all others are in no table for this. Whoever leads the partition looks
-- when check_at has come, judges all ticks after `judged` whose time is over, and moves both on in the statement that opens or
-- closes an incident and writes the message about it. So a tick is judged once, whoever leads.
CREATE TABLE expectations (
    job          bigint NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('start', 'finish')),
    partition    smallint NOT NULL,
    within       interval NOT NULL,           -- from the tick on
    notify_after integer NOT NULL CHECK (notify_after > 0),
    judged       timestamptz NOT NULL,
    check_at     timestamptz NOT NULL,        -- infinity: no tick is to come; whoever changes the job sets it to now
    misses       integer NOT NULL DEFAULT 0,  -- in a row
    missed_tick  timestamptz,                 -- the last one that was missed
    incident     bigint,                      -- the one that is open
    PRIMARY KEY (job, kind)
) WITH (fillfactor = 50);
CREATE INDEX expectations_due ON expectations (partition, check_at);

-- From the miss that was one too many to the recovery.
CREATE TABLE incidents (
    incident  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant    integer NOT NULL REFERENCES tenants,
    job       bigint NOT NULL,
    kind      text NOT NULL,
    within    interval NOT NULL,
    tick      timestamptz NOT NULL,           -- the one that was one too many
    misses    integer NOT NULL,               -- how many were missed in a row by then
    opened_at timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    closed    text CHECK (closed IN ('recovered', 'changed', 'deleted')),
    CHECK ((closed_at IS NULL) = (closed IS NULL))
);
CREATE INDEX incidents_of_tenant ON incidents (tenant, incident);
CREATE INDEX incidents_of_job ON incidents (job, incident);
-- Open ones are counted and listed for one tenant at a time, on every page of the dashboard.
CREATE INDEX incidents_open ON incidents (tenant, incident) WHERE closed_at IS NULL;

-- Messages to the outside, written together with what they tell. A message that is being sent is out of the others' reach until
-- due_at; one whose sender died is sent again then, under the same id.
CREATE TABLE notices (
    notice   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incident bigint NOT NULL,
    event    text NOT NULL CHECK (event IN ('missed', 'recovered')),
    made_at  timestamptz NOT NULL DEFAULT now(),
    due_at   timestamptz NOT NULL DEFAULT now(),
    tries    integer NOT NULL DEFAULT 0,
    ended_at timestamptz,                     -- sent, or given up
    error    text                             -- what the last try met; NULL with an end: it was sent
);
CREATE INDEX notices_due ON notices (due_at) WHERE ended_at IS NULL;
CREATE INDEX notices_of_incident ON notices (incident);

-- Follows every change of a job, whoever makes it. Ticks from before the job was made, resumed or expected anything are not
-- judged. An incident about something that is no longer expected is over without a word.
-- A job that is deleted, or expected no more, just as its leader opens an incident: whoever waits for the leader to let go of the
-- expectation learns of the incident from it, but a statement that began before does not see the incident itself. So it is
-- closed by a statement of its own, which begins afterwards. Otherwise it would be open for ever.
CREATE FUNCTION expect_of_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM expectations e
         WHERE e.job = NEW.job AND (NEW.status = 'deleted' OR NEW.definition->>('expect_' || e.kind || '_within') IS NULL)
        RETURNING e.incident)
    SELECT array_agg(incident) FILTER (WHERE incident IS NOT NULL) INTO ended FROM gone;
    IF ended IS NOT NULL THEN
        UPDATE incidents SET closed_at = now(), closed = CASE NEW.status WHEN 'deleted' THEN 'deleted' ELSE 'changed' END
         WHERE incident = ANY (ended) AND closed_at IS NULL;
    END IF;
    INSERT INTO expectations AS e (job, kind, partition, within, notify_after, judged, check_at)
    SELECT NEW.job, k.kind, NEW.partition, make_interval(secs => k.seconds),
           coalesce((NEW.definition->>'notify_after')::integer, 1), now(), now()
      FROM (VALUES ('start', (NEW.definition->>'expect_start_within')::double precision),
                   ('finish', (NEW.definition->>'expect_finish_within')::double precision)) AS k (kind, seconds)
     WHERE k.seconds IS NOT NULL AND NEW.status <> 'deleted'
    ON CONFLICT (job, kind) DO UPDATE
       SET within = excluded.within, notify_after = excluded.notify_after, check_at = now(),
           judged = CASE WHEN OLD.status <> 'active' AND NEW.status = 'active' THEN greatest(e.judged, now()) ELSE e.judged END;
    RETURN NULL;
END $$;

CREATE TRIGGER expect_of_new_job AFTER INSERT ON jobs FOR EACH ROW
    WHEN (NEW.definition->>'expect_start_within' IS NOT NULL OR NEW.definition->>'expect_finish_within' IS NOT NULL)
    EXECUTE FUNCTION expect_of_job();
CREATE TRIGGER expect_of_changed_job AFTER UPDATE OF definition, status ON jobs FOR EACH ROW
    WHEN (OLD.definition->>'expect_start_within' IS NOT NULL OR OLD.definition->>'expect_finish_within' IS NOT NULL
       OR NEW.definition->>'expect_start_within' IS NOT NULL OR NEW.definition->>'expect_finish_within' IS NOT NULL)
    EXECUTE FUNCTION expect_of_job();

-- When ticks that were held were let go: what was to happen before is not judged, as with the ticks of a pause.
ALTER TABLE cluster ADD COLUMN resumed_at timestamptz;

-- Incidents as people are told of them: of which job, when somebody was told, what kept a message from arriving, and the run.
CREATE VIEW told_incidents AS
SELECT i.incident, i.tenant, i.kind, i.within, i.tick, i.misses, i.opened_at, i.closed_at, i.closed, j.id, j.name,
       (SELECT min(n.ended_at) FROM notices n WHERE n.incident = i.incident AND n.event = 'missed' AND n.error IS NULL) AS told_at,
       (SELECT n.error FROM notices n WHERE n.incident = i.incident AND n.error IS NOT NULL ORDER BY n.notice DESC LIMIT 1) AS trouble,
       CASE WHEN EXISTS (SELECT FROM run_history h WHERE h.job = i.job AND h.scheduled_at = i.tick AND h.serial = 0)
              OR EXISTS (SELECT FROM live_runs r WHERE r.job = i.job AND r.scheduled_at = i.tick AND r.serial = 0)
            THEN run_id(i.job, i.tick, 0) END AS run
  FROM incidents i JOIN jobs j ON j.job = i.job;
