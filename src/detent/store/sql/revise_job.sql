-- A new revision of a job; runs keep the one they were fired with. $1 job, $2 generation as read; the cursor's policies:
-- $3 lanes, $4 queue, $5 schedule, $6 priority, $7 grace, $8 once, $9 runs left; the job: $10 definition, $11 target,
-- $12 tags, $13 owner or NULL to keep it. No row: the job was changed meanwhile.
WITH c AS (
    UPDATE cursors SET generation = generation + 1, revision = revision + 1, lanes = $3::smallint, queue = $4::integer,
           schedule = $5::integer, priority = $6::smallint, grace = $7::integer, once = $8::boolean, runs_left = $9::integer
     WHERE job = $1::bigint AND generation = $2::integer
    RETURNING job, revision),
former AS (
    INSERT INTO job_revisions (job, revision, definition)
    SELECT j.job, j.revision, j.definition FROM jobs j JOIN c USING (job))
UPDATE jobs j SET definition = $10::text::jsonb, revision = c.revision, target = $11::text, tags = $12::text[],
       owner = coalesce($13::text, j.owner), updated_at = now()
  FROM c WHERE j.job = c.job RETURNING j.job
