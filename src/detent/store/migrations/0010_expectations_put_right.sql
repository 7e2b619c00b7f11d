-- detent: compatible with 0009
-- When ticks that were held were let go: what was to happen before is not judged, as with the ticks of a pause.
ALTER TABLE cluster ADD COLUMN resumed_at timestamptz;

-- A job that was deleted, or expected no more, just as its leader opened an incident: whoever waits for the leader to let go of
-- the expectation learns of the incident from it, but a statement that began before does not see the incident itself. So it is
-- closed by a statement of its own, which begins afterwards. Otherwise it would be open for ever.
CREATE OR REPLACE FUNCTION expect_of_job() RETURNS trigger LANGUAGE plpgsql AS $$
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

UPDATE incidents i SET closed_at = now(), closed = 'changed'
 WHERE closed_at IS NULL AND NOT EXISTS (SELECT FROM expectations e WHERE e.incident = i.incident);
