-- End the runs of deleted jobs that wait, in any lane, for a worker or for their next attempt; runs that a worker has
-- continue. $1 jobs: in the transaction that deletes them, and later by upkeep, because a run that a worker has may
-- return to its queue (a failed attempt, a lost node). `ended` is the flag by which upkeep finds jobs with such runs;
-- it is cleared with the last of them. A run that a claim or a promotion has taken meanwhile is in `seen` and not in
-- `locked`, so it counts as left. If history has the run already, that row is kept.
WITH seen AS MATERIALIZED (SELECT job, lane FROM live_runs WHERE job = ANY ($1::bigint[])),
locked AS MATERIALIZED (
    SELECT r.* FROM live_runs r JOIN jobs j ON j.job = r.job AND j.status = 'deleted'
     WHERE r.job = ANY ($1::bigint[]) AND r.owner IS NULL ORDER BY r.job, r.lane FOR UPDATE OF r),
deleted AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
        AND ((r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason,
                             key, payload)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, 'job deleted', key, payload
      FROM locked
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
flagged AS (
    UPDATE cursors c SET ended = true
     WHERE c.job IN (SELECT job FROM seen WHERE (job, lane) NOT IN (SELECT job, lane FROM locked)) AND NOT c.ended
       AND c.next_tick IS NULL)
SELECT job, scheduled_at, serial FROM locked
