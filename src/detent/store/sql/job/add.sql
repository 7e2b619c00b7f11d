-- Insert jobs together with their cursors. Arrays: $1 number, $2 id, $3 name, $4 partition, $5 target, $6 definition,
-- $7 tags as JSON, $8 next tick, $9 fire_at, $10 runs left, $11 queue, $12 schedule, $13 grace, $14 lanes, $15
-- priority, $16 once; then $17 tenant, $18 owner, $19 the time of registration, $20 who; and arrays about the span of
-- ticks that begins: $21 since, NULL for the time of registration, $22 anchor, $23 zone data; $24 missed, $25 most
-- missed, $26 whether it is a task; of its concurrency keys: $27 limit, $28 rate, $29 whether the tenant's jobs share
-- them, $30 template. Returns the numbers that were added: a name that is taken, also by another row of the same batch,
-- is left out. Sorted by name, so that two batches cannot deadlock.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::text[],
                         $8::timestamptz[], $9::timestamptz[], $10::integer[], $11::integer[], $12::integer[],
                         $13::integer[], $14::smallint[], $15::smallint[], $16::boolean[], $21::timestamptz[],
                         $22::timestamptz[], $23::text[], $24::smallint[], $25::integer[], $26::boolean[],
                         $27::smallint[], $28::double precision[], $29::boolean[], $30::text[])
        AS t (job, id, name, partition, target, definition, tags, next_tick, fire_at, runs_left, queue, schedule, grace,
              lanes, priority, once, since, anchor, tzdata, missed, max_missed, task, key_limit, key_rate, key_shared,
              key_text)),
added AS (
    INSERT INTO jobs (job, id, tenant, name, partition, target, owner, tags, definition, created_at, updated_at,
                      changed_by, since, anchor, tzdata)
    OVERRIDING SYSTEM VALUE
    SELECT job, id, $17::integer, name, partition, target, $18::text,
           ARRAY(SELECT jsonb_array_elements_text(tags::jsonb)), definition::jsonb, $19::timestamptz, $19::timestamptz,
           $20::text, since, anchor, tzdata
      FROM batch ORDER BY name
    ON CONFLICT (tenant, name) WHERE status <> 'deleted' DO NOTHING
    RETURNING job),
placed AS (
    INSERT INTO cursors (job, next_tick, fire_at, runs_left, queue, schedule, grace, partition, lanes, priority, once,
                         missed, max_missed, task, key_limit, key_rate, key_shared, key_text)
    SELECT job, next_tick, fire_at, runs_left, queue, schedule, grace, partition, lanes, priority, once, missed,
           max_missed, task, key_limit, key_rate, key_shared, key_text
      FROM batch WHERE job IN (SELECT job FROM added))
SELECT job FROM added
