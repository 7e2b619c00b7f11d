-- Keys of the API. What is kept of a secret is a digest, keyed with the id, from which it cannot be told.
CREATE TABLE api_keys (
    id           text PRIMARY KEY CHECK (id ~ '^[a-z2-7]{10}$'),   -- public: it names the key in lists and in logs
    number       bigint GENERATED ALWAYS AS IDENTITY,              -- the order of creation
    tenant       integer NOT NULL REFERENCES tenants,
    digest       bytea NOT NULL CHECK (length(digest) = 32),
    scope        text NOT NULL CHECK (scope IN ('read', 'work', 'operate', 'write', 'admin')),
    name         text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text,                        -- the id of the key that made it; NULL: made on the server's machine
    expires_at   timestamptz,                 -- NULL: never
    revoked_at   timestamptz,
    last_used_at timestamptz                  -- coarse: at most one write in five minutes
);

CREATE UNIQUE INDEX api_keys_of_tenant ON api_keys (tenant, number);
