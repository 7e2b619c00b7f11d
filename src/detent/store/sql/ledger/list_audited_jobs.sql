-- Jobs of a tenant whose ticks may lie in (after, until], oldest first, including deleted ones and those without a
-- cursor or a schedule, which an audit reports as unknown. $1 tenant, $2 after, $3 until, $4 after this number, $5
-- limit, $6 some numbers, or NULL for all
SELECT j.job, j.id, j.name, j.created_at, c.schedule, s.stored
  FROM jobs j LEFT JOIN cursors c USING (job) LEFT JOIN schedules s USING (schedule)
 WHERE j.tenant = $1::integer AND j.job > $4::bigint AND j.created_at < $3::timestamptz
   AND ($6::bigint[] IS NULL OR j.job = ANY ($6::bigint[]))
   AND (j.status <> 'deleted' OR j.since > $2::timestamptz)
 ORDER BY j.job LIMIT $5::integer
