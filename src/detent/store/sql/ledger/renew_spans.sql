-- New spans for jobs whose next tick is the same by a new release of the zone data. Arrays: $1 job, $2 generation as read,
-- $3 the end of the old span; then $4 the release.
WITH l AS MATERIALIZED (
    SELECT v.* FROM (SELECT * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[]) AS t (job, generation, until) ORDER BY job) v
      CROSS JOIN LATERAL (SELECT schedule FROM cursors WHERE job = v.job AND generation = v.generation FOR NO KEY UPDATE) c),
e AS (
    INSERT INTO segments (job, since, until, schedule, anchor, tzdata, opened, opened_by, reason, closed)
    SELECT j.job, coalesce(j.since, j.created_at), l.until, c.schedule, j.anchor, j.tzdata, coalesce(j.opened, 'created'),
           j.opened_by, j.reason, 'zone data'
      FROM l JOIN jobs j USING (job) JOIN cursors c USING (job) WHERE l.until > coalesce(j.since, j.created_at))
UPDATE jobs j SET since = l.until, tzdata = $4::text, opened = 'zone data' FROM l WHERE j.job = l.job AND j.status = 'active'
