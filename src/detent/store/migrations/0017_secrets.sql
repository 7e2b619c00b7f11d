-- detent: compatible with 0009
-- Secrets of tenants. A value is encrypted with a data key of its own, which is encrypted with a master key that is not
-- in the database (runtime/envelope.py). `version` is the newest one; older ones stay valid until they expire.
CREATE TABLE secrets (
    tenant     integer NOT NULL REFERENCES tenants,
    name       text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    version    integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE secret_versions (
    tenant     integer NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    key_id     text NOT NULL,                 -- which master key encrypts the data key
    wrapped    bytea NOT NULL,                -- the data key, encrypted
    nonce      bytea NOT NULL,
    ciphertext bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,                   -- NULL: the newest one
    PRIMARY KEY (tenant, name, version),
    FOREIGN KEY (tenant, name) REFERENCES secrets ON DELETE CASCADE
);

-- The secret that signs the calls of a tenant's jobs that name none themselves.
ALTER TABLE tenants ADD COLUMN signing text COLLATE "C";
ALTER TABLE tenants ADD FOREIGN KEY (tenant, signing) REFERENCES secrets (tenant, name);

-- The secrets that a job's definition refers to; NULL: none, as nearly always.
ALTER TABLE jobs ADD COLUMN secrets text[];
CREATE INDEX jobs_secrets ON jobs USING gin (secrets) WHERE secrets IS NOT NULL;

-- `secrets`: as `work`, and claimed runs have the values of their secrets.
ALTER TABLE api_keys DROP CONSTRAINT api_keys_scope_check;
ALTER TABLE api_keys ADD CHECK (scope IN ('read', 'work', 'secrets', 'operate', 'write', 'admin'));
