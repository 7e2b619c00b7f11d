-- detent: compatible with 0009
-- Roles that are bound to keys, people and groups of people: in a tenant, for all its jobs, or for those of a queue, with a
-- tag, or both. People are known by what the OpenID provider says about them; they are in no table of their own.
CREATE TABLE role_bindings (
    binding      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       integer NOT NULL REFERENCES tenants ON DELETE CASCADE,
    subject_kind text COLLATE "C" NOT NULL CHECK (subject_kind IN ('key', 'user', 'group')),
    subject      text COLLATE "C" NOT NULL CHECK (subject <> ''),
    role         text COLLATE "C" NOT NULL CHECK (role IN ('viewer', 'operator', 'editor', 'admin')),
    queue        text COLLATE "C" CHECK (queue <> ''),
    tag          text COLLATE "C" CHECK (tag <> ''),
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text,
    CHECK (role <> 'admin' OR (queue IS NULL AND tag IS NULL))
);
CREATE UNIQUE INDEX role_bindings_once ON role_bindings
    (subject_kind, subject, tenant, role, coalesce(queue, ''), coalesce(tag, ''));
CREATE INDEX role_bindings_of_tenant ON role_bindings (tenant, binding);

-- `bound`: may do only what the bindings of the key say.
ALTER TABLE api_keys DROP CONSTRAINT api_keys_scope_check;
ALTER TABLE api_keys ADD CHECK (scope IN ('read', 'work', 'secrets', 'operate', 'write', 'admin', 'bound'));

-- Whether a job is one of those that a caller is limited to: [{"queue": …, "tag": …}, …], of which one must match.
CREATE FUNCTION within_limits(number bigint, limits jsonb) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT EXISTS (
        SELECT FROM jobs j JOIN cursors c USING (job) JOIN queues q USING (queue),
               jsonb_to_recordset(limits) AS l (queue text, tag text)
         WHERE j.job = number AND (l.queue IS NULL OR l.queue = q.name) AND (l.tag IS NULL OR l.tag = ANY (j.tags)))
$$;

-- Sessions of people who logged in at the OpenID provider: they have no key. What the provider said about the person is
-- kept, and asked for again at `check_at`; without an answer the session ends at `valid_until`. `tokens` are those of the
-- provider, encrypted with a key that only the browser's session token yields.
ALTER TABLE sessions ALTER COLUMN key DROP NOT NULL;
ALTER TABLE sessions
    ADD COLUMN tenant integer REFERENCES tenants ON DELETE CASCADE,
    ADD COLUMN subject text COLLATE "C",
    ADD COLUMN name text,
    ADD COLUMN email text COLLATE "C",
    ADD COLUMN groups text[] COLLATE "C",
    ADD COLUMN check_at timestamptz,
    ADD COLUMN valid_until timestamptz,
    ADD COLUMN tokens bytea,
    ADD CHECK (key IS NOT NULL OR (tenant IS NOT NULL AND subject IS NOT NULL AND groups IS NOT NULL
                                   AND check_at IS NOT NULL AND valid_until IS NOT NULL AND tokens IS NOT NULL));
