-- The row-writes of a fire and nothing else: no comparison, no fence, no arrays. $1 batch, $2 node
WITH u AS (
    UPDATE cursors c SET last_tick = next_tick, next_tick = next_tick + interval '1 hour',
           fire_at = fire_at + interval '1 hour'
      FROM bench_batches b WHERE b.batch = $1::integer AND c.job = b.job
    RETURNING c.job, c.last_tick, c.queue, c.revision, c.priority, c.once)
INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once)
SELECT job, last_tick, 1 << 22 | 1, $2::bigint, last_tick, queue, revision, 0, priority, once FROM u
