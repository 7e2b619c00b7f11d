-- Ticks too late to run: compare-and-set a batch of cursors past them, with ledger rows for the ranges they leave.
-- $1 node; one of each per job, sorted: $2 job, $3 expected tick, $4 generation, $5 next tick, $6 its fire_at, $7 the
-- last tick passed over, or NULL to keep the one there is; ranges that do not run, each at most a day: $8 job, $9 first
-- tick, $10 last tick, $11 count, $12 reason; ranges that are caught up in addition to the live ticks: $13 job, $14
-- first tick, $15 last, $16 count. $17 whether these are ticks of suspended tenants, which are skipped, not missed.
-- Status 4 is skipped, 5 is missed. Returns the jobs whose cursor moved; the others were not as expected.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::timestamptz[], $6::timestamptz[],
           $7::timestamptz[])
        AS t (job, tick, generation, next_tick, fire_at, last_tick)),
moved AS (
    UPDATE cursors c SET next_tick = batch.next_tick, fire_at = batch.fire_at,
           last_tick = coalesce(batch.last_tick, c.last_tick), ended = batch.next_tick IS NULL
      FROM batch, fence
     WHERE c.job = batch.job AND c.next_tick = batch.tick AND c.generation = batch.generation
       AND coalesce(c.fire_at, 'infinity') <= now()         -- as in the fire: not by the index on fire_at
       AND (SELECT held_at IS NULL FROM cluster)
       -- A node may not know yet that a tenant was suspended or resumed.
       AND $17::boolean = (c.queue = ANY (ARRAY(SELECT queue FROM suspended_queues)))
    RETURNING c.job, c.revision, c.partition, c.schedule),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT moved.job, m.first_tick, now(), 0, moved.revision, CASE WHEN $17::boolean THEN 4 ELSE 5 END, m.reason,
           m.ticks, m.last_tick
      FROM moved JOIN unnest($8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::integer[], $12::text[])
               AS m (job, first_tick, last_tick, ticks, reason) USING (job)),
owed AS (
    INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)
    SELECT moved.job, moved.partition, 'missed', moved.schedule, m.first_tick, m.last_tick, m.first_tick, m.ticks
      FROM moved JOIN unnest($13::bigint[], $14::timestamptz[], $15::timestamptz[], $16::integer[])
               AS m (job, first_tick, last_tick, ticks) USING (job))
SELECT job FROM moved
