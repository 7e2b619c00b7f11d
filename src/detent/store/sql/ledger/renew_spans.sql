-- New spans for jobs whose next tick is the same under a new release of the zone data. Arrays: $1 job, $2 generation as
-- read, $3 the end of the old span; then $4 the release.
WITH locked AS MATERIALIZED (
    SELECT batch.* FROM (SELECT * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[]) AS t (job, generation,
           until) ORDER BY job) batch
      CROSS JOIN LATERAL (SELECT schedule FROM cursors WHERE job = batch.job AND generation = batch.generation
          FOR NO KEY UPDATE) c),
closed_span AS (
    INSERT INTO segments (job, since, until, schedule, anchor, tzdata, opened, opened_by, reason, closed)
    SELECT j.job, coalesce(j.since, j.created_at), locked.until, c.schedule, j.anchor, j.tzdata,
           coalesce(j.opened, 'created'), j.opened_by, j.reason, 'zone data'
      FROM locked JOIN jobs j USING (job) JOIN cursors c USING (job)
     WHERE locked.until > coalesce(j.since, j.created_at))
UPDATE jobs j SET since = locked.until, tzdata = $4::text, opened = 'zone data' FROM locked WHERE j.job = locked.job
    AND j.status = 'active'
