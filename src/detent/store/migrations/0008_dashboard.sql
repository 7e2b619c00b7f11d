-- detent: compatible with 0007
-- What the dashboard looks at: who is logged in, and figures that are kept so that no page has to count millions of rows.

-- Browsers that somebody logged in with a key. What is kept of a session is a digest; it ends with its key.
CREATE TABLE sessions (
    digest     bytea PRIMARY KEY CHECK (length(digest) = 32),
    key        text NOT NULL REFERENCES api_keys ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- How many runs of a tenant ended in each minute, by status and by how late they started: the number of the first bound
-- that is larger, or -1 where that is not asked. Written after the fact by one node for all, never by a settle.
CREATE TABLE run_minutes (
    tenant integer NOT NULL,
    minute timestamptz NOT NULL,
    status smallint NOT NULL,
    bucket smallint NOT NULL,
    runs   bigint NOT NULL,
    PRIMARY KEY (tenant, minute, status, bucket)
) WITH (fillfactor = 80);

-- How many jobs a tenant has in each status, as last counted.
CREATE TABLE job_counts (
    tenant integer NOT NULL,
    status text NOT NULL,
    jobs   bigint NOT NULL,
    PRIMARY KEY (tenant, status)
);

-- One row: through when history is in run_minutes, and when jobs were last counted.
CREATE TABLE tally (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    folded_until timestamptz NOT NULL DEFAULT now(),
    counted_at   timestamptz NOT NULL DEFAULT '2000-01-01T00:00:00Z'
) WITH (fillfactor = 20);
INSERT INTO tally DEFAULT VALUES;
