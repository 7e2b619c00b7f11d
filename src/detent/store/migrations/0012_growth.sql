-- detent: compatible with 0009
-- Jobs that cannot be fired are on record for every node to report, and nothing grows without bound.

-- Ticks that the leader of a partition cannot fire or release, with why: a schedule that it cannot read, a row that a constraint
-- refuses. It tries again by itself. A row counts only while the job still stands on that tick; upkeep removes the others.
CREATE TABLE set_aside (
    job        bigint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('tick', 'catch-up')),
    tick       timestamptz NOT NULL,
    generation integer NOT NULL,              -- of the cursor when it was tried
    why        text NOT NULL,
    node       bigint NOT NULL,               -- the leader that last tried
    since      timestamptz NOT NULL DEFAULT now(),
    tried_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, kind)
);

CREATE VIEW set_aside_jobs AS
SELECT s.job, s.kind, s.tick, s.why, s.node, s.since, s.tried_at
  FROM set_aside s JOIN cursors c ON c.job = s.job
 WHERE CASE s.kind WHEN 'tick' THEN c.generation = s.generation AND c.next_tick = s.tick
            ELSE EXISTS (SELECT FROM catchups k WHERE k.job = s.job AND k.next_tick = s.tick) END;

-- Since when no job and no span has this schedule; NULL: one has, or nobody has looked. One that is still unused a day later is
-- removed. Whoever registers a job with a marked schedule takes the mark away, in the transaction of the registration: either
-- waits for the other, so a schedule that is in use again is not removed (keep_schedules.sql, forget_schedules.sql).
ALTER TABLE schedules ADD COLUMN unused_since timestamptz;
-- The same of queues, which every node reads again and again: no job and no run that is not over is in it.
ALTER TABLE queues ADD COLUMN unused_since timestamptz;
