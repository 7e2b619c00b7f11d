-- detent: compatible with 0013
-- Which private addresses and guarded ports the calls of a tenant may reach. A pattern is in its normal form, as
-- domain/target_patterns.py writes it.
CREATE TABLE tenant_targets (
    tenant     integer NOT NULL REFERENCES tenants,
    pattern    text COLLATE "C" NOT NULL CHECK (length(pattern) <= 300),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text,
    PRIMARY KEY (tenant, pattern)
);
