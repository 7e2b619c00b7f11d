-- New revisions of jobs; runs keep the one they were fired with. Arrays: $1 job, $2 generation as read; the cursor's
-- policies: $3 lanes, $4 queue, $5 schedule, $6 priority, $7 grace, $8 once, $9 runs left; the job: $10 name, $11
-- definition, $12 target, $13 tags as JSON; then $14 owner or NULL to keep it, and an array: $15 last_tick as read
-- (NULL: nothing has fired), because a fire spends runs without changing the generation; $16 who; arrays: $17 missed,
-- $18 most missed, $19 whether it is a task; of its concurrency keys: $20 limit, $21 rate, $22 whether the jobs of the
-- tenant share them, $23 template. Not returned: changed or fired meanwhile.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::smallint[], $4::integer[], $5::integer[], $6::smallint[],
                         $7::integer[], $8::boolean[], $9::integer[], $10::text[], $11::text[], $12::text[],
                         $13::text[], $15::timestamptz[], $17::smallint[], $18::integer[], $19::boolean[],
                         $20::smallint[], $21::double precision[], $22::boolean[], $23::text[])
        AS t (job, generation, lanes, queue, schedule, priority, grace, once, runs_left, name, definition, target, tags,
              last_tick, missed, max_missed, task, key_limit, key_rate, key_shared, key_text)),
locked AS MATERIALIZED (
    SELECT batch.* FROM (SELECT * FROM batch ORDER BY job) batch CROSS JOIN LATERAL (
        SELECT FROM cursors WHERE job = batch.job AND generation = batch.generation
           AND last_tick = coalesce(batch.last_tick, '-infinity') FOR NO KEY UPDATE) c),
revised AS (
    UPDATE cursors c SET generation = c.generation + 1, revision = c.revision + 1, lanes = locked.lanes,
           queue = locked.queue, schedule = locked.schedule, priority = locked.priority, grace = locked.grace,
           once = locked.once, runs_left = locked.runs_left, missed = locked.missed, max_missed = locked.max_missed,
           -- A task has no tick; cursor/move follows.
           next_tick = CASE WHEN NOT locked.task THEN c.next_tick END,
           fire_at = CASE WHEN NOT locked.task THEN c.fire_at END,
           task = locked.task, key_limit = locked.key_limit, key_rate = locked.key_rate,
           key_shared = locked.key_shared, key_text = locked.key_text
      FROM locked WHERE c.job = locked.job
    RETURNING c.job, c.revision),
former AS (
    INSERT INTO job_revisions (job, revision, definition, changed_by, made_at)
    SELECT job, revision, definition, changed_by, coalesce(revised_at, created_at) FROM jobs
     WHERE job IN (SELECT job FROM revised))
UPDATE jobs j SET name = locked.name, definition = locked.definition::jsonb, revision = revised.revision,
       target = locked.target, tags = ARRAY(SELECT jsonb_array_elements_text(locked.tags::jsonb)),
       owner = coalesce($14::text, j.owner), updated_at = now(), changed_by = $16::text, revised_at = now()
  FROM revised JOIN locked USING (job) WHERE j.job = revised.job RETURNING j.job
