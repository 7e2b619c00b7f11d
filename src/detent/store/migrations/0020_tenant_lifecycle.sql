-- detent: compatible with 0009
-- Tenants that can be suspended and deleted, and that have limits of storage and requests. Nodes of an older release fire
-- the ticks of a suspended tenant: upgrade all nodes before you suspend one.

ALTER TABLE tenants
    ADD COLUMN max_storage_bytes   bigint CHECK (max_storage_bytes > 0),
    ADD COLUMN storage_bytes       bigint,              -- as last measured, where there is a limit
    ADD COLUMN storage_measured_at timestamptz,
    ADD COLUMN requests_per_second double precision CHECK (requests_per_second > 0),    -- NULL: the setting of the server
    ADD COLUMN suspended_at        timestamptz,
    ADD COLUMN suspended_by        text,
    ADD COLUMN suspended_reason    text,
    ADD COLUMN deleting_at         timestamptz,         -- from then on upkeep deletes everything that it owns
    ADD COLUMN deleting_by         text,
    ADD COLUMN deleted_rows        jsonb,               -- how many so far, by table
    ADD CHECK (tenant <> 1 OR suspended_at IS NULL),
    ADD CHECK (deleting_at IS NULL OR suspended_at IS NOT NULL);

CREATE INDEX tenants_suspended ON tenants (tenant) WHERE suspended_at IS NOT NULL;

-- The queues of suspended tenants. A fire reads it once for its whole batch, and it is nearly always empty. A table and
-- not a view: a fire is planned each time, and a join of tenants and queues took 82 microseconds to plan, this takes 5.
CREATE TABLE suspended_queues (
    queue integer PRIMARY KEY REFERENCES queues ON DELETE CASCADE
);

-- A registration that began before a suspension may add a queue after it. The lock makes each of the two wait for the
-- other: the second one sees what the first one did.
CREATE FUNCTION suspend_new_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    since timestamptz;
BEGIN
    SELECT suspended_at INTO since FROM tenants WHERE tenant = NEW.tenant FOR SHARE;
    IF since IS NOT NULL THEN
        INSERT INTO suspended_queues (queue) VALUES (NEW.queue);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER suspend_new_queue AFTER INSERT ON queues FOR EACH ROW EXECUTE FUNCTION suspend_new_queue();
