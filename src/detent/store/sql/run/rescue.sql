-- Return the runs of an evicted node to their queues. $1 that node, $2 how many losses make a run dead that was alone,
-- $3 limit; repeat until nothing is returned, then delete the node.
-- Not known to have started: returned uncounted; only the first time crashes + 1, so that the next owner writes
-- started_at first. From then on crashes - 1 is the number of lost attempts, which are not failures of the run.
-- Started: a lost attempt, which counts against the run only if nothing else ran on its node, because any of the runs
-- that were lost together may have crashed it. Started and at_most_once, or lost alone too often: dead (status 2).
-- Cancelled before: cancelled (status 3). A run that another transaction has locked (a handler's that has not ended) is
-- left for the next pass. If history has a row of this key already, that row is kept: one such run must not keep the
-- others of its node from being rescued.
WITH locked AS MATERIALIZED (
    SELECT r.*, r.cancel AS stop, r.started_at IS NOT NULL AND r.alone IS TRUE AS counts,
           r.started_at IS NOT NULL AND (r.once OR r.alone IS TRUE AND coalesce(r.lost_alone, 0) + 1 >= $2) AS dead
      FROM live_runs r
     WHERE r.owner = $1 AND EXISTS (SELECT FROM nodes WHERE node = $1 AND evicted)
     ORDER BY r.job, r.lane LIMIT $3 FOR UPDATE OF r SKIP LOCKED),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, owner, started_at, now(), attempt, 'lost',
           CASE WHEN started_at IS NULL THEN 'the node that held it was lost; it may not have started'
                WHEN counts THEN 'the node that ran it was lost; nothing else ran there'
                ELSE 'the node that ran it was lost' END FROM locked
    ON CONFLICT (job, scheduled_at, serial, token) DO NOTHING),
deleted AS (                                 -- by key, as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE dead OR stop)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
                             reason, key, payload)
    SELECT job, scheduled_at, token, owner, started_at, now(), serial, revision, attempt,
           CASE WHEN dead THEN 2 ELSE 3 END, CASE WHEN replaced AND NOT dead THEN 'replaced' ELSE 'lost' END, key,
           payload
      FROM locked WHERE dead OR stop
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
-- least: a smallint must not overflow, however often the other runs of its nodes crash.
returned AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, alone = NULL, token = r.token + 1,
           crashes = least(r.crashes + (r.started_at IS NOT NULL OR r.crashes = 0)::integer, 30000),
           attempt = least(r.attempt + (r.started_at IS NOT NULL)::integer, 30000),
           lost_alone = CASE WHEN r.started_at IS NOT NULL AND r.alone THEN coalesce(r.lost_alone, 0) + 1
                             ELSE r.lost_alone END,
           not_before = now()
     WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE NOT dead AND NOT stop)) IS TRUE)
SELECT job, lane, dead, scheduled_at, serial, token, attempt FROM locked
