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

-- A fire reads this once for its whole batch, and it is nearly always empty.
CREATE INDEX tenants_suspended ON tenants (tenant) WHERE suspended_at IS NOT NULL;
CREATE VIEW suspended_queues AS
SELECT q.queue FROM tenants t JOIN queues q USING (tenant) WHERE t.suspended_at IS NOT NULL;
