-- Answers to requests that were sent with an Idempotency-Key: written in the transaction that did the work, so that
-- neither is there without the other. A request under way is held apart by an advisory lock, not by a row.
CREATE TABLE requests (
    tenant     integer NOT NULL,
    key        text NOT NULL,
    digest     bytea NOT NULL CHECK (length(digest) = 32),    -- of the whole request
    status     smallint NOT NULL,
    headers    jsonb NOT NULL,
    body       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);

CREATE INDEX requests_by_age ON requests (created_at);

-- Names compared byte by byte: the unique index on them then also finds those that begin alike.
ALTER TABLE jobs ALTER COLUMN name TYPE text COLLATE "C";

-- Most jobs have no tag; an index on all of them would hold an entry for each of those too.
CREATE INDEX jobs_tags ON jobs USING gin (tags) WHERE tags <> '{}';

-- Dead letters are few, so this costs a settle nothing, and they are found without walking through history.
CREATE INDEX run_history_dead ON run_history (scheduled_at, job, serial) WHERE status = 2;
