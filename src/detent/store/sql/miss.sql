-- Ticks too late to run: compare-and-set past them, with one ledger row for each day's range of them.
-- $1 node, $2 job, $3 expected tick, $4 generation, $5 next tick, $6 its fire_at, $7 last missed tick;
-- ranges: $8 first ticks, $9 last ticks, $10 counts, $11 reasons. One row back: it was ours to do.
WITH me AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
u AS (
    UPDATE cursors c SET next_tick = $5, fire_at = $6, last_tick = $7, ended = $5::timestamptz IS NULL FROM me
     WHERE c.job = $2 AND c.next_tick = $3 AND c.generation = $4 AND c.fire_at <= now() RETURNING c.job, c.revision),
s AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT u.job, m.first_tick, now(), 0, u.revision, 5, m.reason, m.ticks, m.last_tick
      FROM u, unnest($8::timestamptz[], $9::timestamptz[], $10::integer[], $11::text[]) AS m (first_tick, last_tick, ticks, reason))
SELECT job FROM u
