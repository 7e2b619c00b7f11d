-- detent: compatible with 0009
-- Requests of a tenant are limited once for all nodes, and sessions end with their key.

-- The tokens of each tenant's requests. A node takes some at a time (request_budget/take.sql), so that most requests
-- write nothing. Unlogged: after a crash every tenant begins with a full bucket.
CREATE UNLOGGED TABLE request_budgets (
    tenant      integer PRIMARY KEY,
    tokens      double precision NOT NULL,
    granted     double precision NOT NULL,    -- to the last statement: an upsert can return only what the row holds
    refilled_at timestamptz NOT NULL
) WITH (fillfactor = 20);

CREATE INDEX sessions_by_key ON sessions (key);
