-- Workers in any language, which pull their work over the API. They are no nodes: nobody beats for them, so each run they
-- hold has a lease of its own. Embedded workers never read any of this.

-- Who has pulled runs. A live run that worker n holds has the owner -n, which is no node's number: claims of embedded
-- workers look for no owner, their settles and rescues for a node's, so neither can touch it.
CREATE TABLE pull_workers (
    worker  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant  integer NOT NULL REFERENCES tenants,
    name    text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name)
);

-- One row for each run that is held: there as long as its live run has this token and this worker for its owner, written
-- and deleted by the same statements. Whoever ends or frees a pulled run locks this row first, then the live run.
-- A lease ends at the latest where the run's time limit does.
CREATE TABLE pull_leases (
    job          bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    serial       integer NOT NULL,
    token        bigint NOT NULL,
    worker       bigint NOT NULL,
    tenant       integer NOT NULL,
    lane         smallint NOT NULL,
    claimed_at   timestamptz NOT NULL DEFAULT now(),
    ends_at      timestamptz NOT NULL,        -- claimed_at plus the job's timeout_seconds: no heartbeat goes beyond
    lease        interval NOT NULL,           -- as last asked for: an end further ahead than twice this is void
    lease_until  timestamptz NOT NULL,
    CHECK (lease_until <= ends_at),
    PRIMARY KEY (job, scheduled_at, serial)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- A queue belongs to a tenant: the same name in two tenants is two queues, so that a worker which pulls for one can be
-- handed nothing of the other and need not look past the other's backlog.
ALTER TABLE queues ADD COLUMN tenant integer NOT NULL DEFAULT 1 REFERENCES tenants;
ALTER TABLE queues ALTER COLUMN tenant DROP DEFAULT;
ALTER TABLE queues DROP CONSTRAINT queues_name_needs_key;
ALTER TABLE queues ADD UNIQUE (tenant, name, needs);

-- Jobs of other tenants move to queues of their own.
INSERT INTO queues (tenant, name, needs)
SELECT DISTINCT j.tenant, q.name, q.needs FROM jobs j JOIN cursors c USING (job) JOIN queues q USING (queue) WHERE j.tenant <> 1;
UPDATE cursors c SET queue = own.queue
  FROM jobs j, queues shared, queues own
 WHERE j.job = c.job AND j.tenant <> 1 AND shared.queue = c.queue
   AND own.tenant = j.tenant AND own.name = shared.name AND own.needs = shared.needs;
UPDATE live_runs r SET queue = own.queue
  FROM jobs j, queues shared, queues own
 WHERE j.job = r.job AND j.tenant <> 1 AND shared.queue = r.queue
   AND own.tenant = j.tenant AND own.name = shared.name AND own.needs = shared.needs;
