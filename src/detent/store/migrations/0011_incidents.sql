-- detent: compatible with 0010
-- Open incidents are counted and listed for one tenant at a time, on every page of the dashboard: however many other tenants
-- have, and however many are closed, nobody reads those.
DROP INDEX incidents_open;
CREATE INDEX incidents_open ON incidents (tenant, incident) WHERE closed_at IS NULL;
