-- detent: compatible with 0009
-- The audit log: who changed what, from where. An event is inserted in the transaction of its change, so neither is there
-- without the other. It refers to no other table, because it outlives what it speaks of.
--
-- A chain of hashes shows later that no event was altered, removed or moved. If every change had to know the hash of the
-- one before it, all changes would wait for one another. So an event is inserted without a place in the chain, and a node
-- chains new events a few seconds later, in one statement for many (domain/audit_chain.py).

CREATE TABLE audit_events (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT now(),
    tenant        integer,                  -- whom the change concerns; NULL: the cluster, or nobody who is known
    tenant_name   text COLLATE "C",
    actor_kind    text COLLATE "C" NOT NULL,
    actor_id      text COLLATE "C",
    actor_name    text,
    address       text COLLATE "C",
    action        text COLLATE "C" NOT NULL,
    object_kind   text COLLATE "C" NOT NULL,
    object_id     text COLLATE "C",
    object_name   text,
    before        jsonb,                    -- only what changed, and no secret
    after         jsonb,
    request_id    text COLLATE "C",
    position      bigint,                   -- in the chain; NULL: not chained yet
    previous_hash bytea,
    hash          bytea
);
CREATE UNIQUE INDEX audit_events_chain ON audit_events (position) WHERE position IS NOT NULL;
CREATE INDEX audit_events_unchained ON audit_events (id) WHERE position IS NULL;
CREATE INDEX audit_events_of_tenant ON audit_events (tenant, id);

-- Both ends of the chain: the newest event in it, and the last one that was removed after its time.
CREATE TABLE audit_chain (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    head       bigint NOT NULL DEFAULT 0,
    head_hash  bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    purged     bigint NOT NULL DEFAULT 0,
    purged_hash bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex')
);
INSERT INTO audit_chain DEFAULT VALUES;

-- A role for run time can add events, and cannot change or remove them. What has to is done by two functions of the owner.

-- Append events to the chain behind the head that the caller has read; how many. 0: another node was faster.
CREATE FUNCTION chain_audit_events(behind bigint, events bigint[], hashes bytea[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    latest audit_chain;
    chained integer;
BEGIN
    SELECT * INTO latest FROM audit_chain FOR UPDATE;
    IF latest.head <> behind THEN
        RETURN 0;
    END IF;
    UPDATE audit_events e
       SET position = behind + n.place, hash = n.hash,
           previous_hash = CASE WHEN n.place = 1 THEN latest.head_hash ELSE hashes[n.place - 1] END
      FROM unnest(events, hashes) WITH ORDINALITY AS n (id, hash, place)
     WHERE e.id = n.id AND e.position IS NULL;
    GET DIAGNOSTICS chained = ROW_COUNT;
    IF chained <> cardinality(events) OR chained <> cardinality(hashes) THEN
        RAISE EXCEPTION 'some of these events do not exist or are chained already';
    END IF;
    UPDATE audit_chain SET head = behind + chained, head_hash = hashes[chained] WHERE chained > 0;
    RETURN chained;
END $$;

-- Remove the oldest events of the chain, from before a time, at most so many; how many. The last day is never removed.
-- The event of it is written here, so that a role for run time cannot remove events without one.
CREATE FUNCTION purge_audit_events(before_time timestamptz, most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    young timestamptz := least(before_time, now() - interval '1 day');
    last_position bigint;
    last_hash bytea;
    removed integer;
BEGIN
    PERFORM FROM audit_chain FOR UPDATE;
    WITH oldest AS MATERIALIZED (
        SELECT position, hash, at FROM audit_events
         WHERE position > (SELECT purged FROM audit_chain) ORDER BY position LIMIT most)
    SELECT o.position, o.hash INTO last_position, last_hash FROM oldest o
     WHERE o.position < coalesce((SELECT min(y.position) FROM oldest y WHERE y.at >= young), 9223372036854775807)
     ORDER BY o.position DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM audit_events WHERE position <= last_position;
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE audit_chain SET purged = last_position, purged_hash = last_hash;
    INSERT INTO audit_events (actor_kind, actor_name, action, object_kind, after)
    VALUES ('detent', 'detent', 'audit-log.purge', 'audit-log', jsonb_build_object(
        'events', removed, 'before', to_char(young AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
    RETURN removed;
END $$;

DO $$
DECLARE
    signature text;
BEGIN
    FOREACH signature IN ARRAY ARRAY[
        'chain_audit_events(bigint, bigint[], bytea[])', 'purge_audit_events(timestamptz, integer)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', signature, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    END LOOP;
END $$;
