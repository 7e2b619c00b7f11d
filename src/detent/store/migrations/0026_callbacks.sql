-- detent: compatible with 0009
-- Runs that their targets have accepted (202) wait for a callback under a lease of the pull protocol.

-- When the target accepted the run; NULL: a worker that pulls holds it. When the lease of an accepted run ends, the
-- attempt has failed: no worker was lost.
ALTER TABLE pull_leases ADD COLUMN accepted_at timestamptz;

-- Keys of the MACs in the credentials of callbacks. The newest one signs, all are accepted. Nodes create the first one.
CREATE TABLE callback_keys (
    number     integer PRIMARY KEY,
    key        bytea NOT NULL CHECK (length(key) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
