-- The bytes that some jobs of a tenant take as they are stored, compressed: definitions, former ones, payloads,
-- results, errors and lines. $1 tenant, $2 after this job, $3 how many jobs. `last`: the last one; NULL: there are no
-- more.
WITH page AS MATERIALIZED (
    SELECT job, pg_column_size(definition) AS size FROM jobs WHERE tenant = $1::integer AND job > $2::bigint
     ORDER BY job LIMIT $3::integer)
SELECT max(page.job) AS last, coalesce(sum(page.size
     + coalesce((SELECT sum(pg_column_size(r.definition)) FROM job_revisions r WHERE r.job = page.job), 0)
     + coalesce((SELECT sum(pg_column_size(p.payload)) FROM run_payloads p WHERE p.job = page.job), 0)
     + coalesce((SELECT sum(coalesce(pg_column_size(h.result), 0) + coalesce(pg_column_size(h.payload), 0))
                   FROM run_history h WHERE h.job = page.job), 0)
     + coalesce((SELECT sum(pg_column_size(b.payload)) FROM backlog b WHERE b.job = page.job AND NOT b.parked), 0)
     + coalesce((SELECT sum(pg_column_size(b.payload)) FROM backlog b WHERE b.job = page.job AND b.parked), 0)
     + coalesce((SELECT sum(coalesce(pg_column_size(a.error), 0) + coalesce(pg_column_size(a.traceback), 0))
                   FROM attempts a WHERE a.job = page.job), 0)
     + coalesce((SELECT sum(pg_column_size(l.lines)) FROM run_logs l WHERE l.job = page.job), 0)), 0)::bigint AS bytes
  FROM page
