-- The data from which a job's ticks are explained, deleted or not. $1 job
SELECT j.job, j.id, j.tenant, j.name, j.status, j.created_at, j.partition, j.definition, j.since, j.opened, j.opened_by,
       j.reason, j.paused_until, c.next_tick, nullif(c.last_tick, '-infinity') AS last_tick, now() AS now,
       -- else unknown, once that revision is no longer kept
       CASE WHEN j.revision = 1 THEN j.changed_by
            ELSE (SELECT r.changed_by FROM job_revisions r WHERE r.job = j.job AND r.revision = 1) END AS created_by
  FROM jobs j JOIN cursors c USING (job) WHERE j.job = $1::bigint
