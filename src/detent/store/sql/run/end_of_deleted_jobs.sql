-- Runs of deleted jobs that wait, in whatever lane, for a worker or for their next try, end; those under way go on. $1
-- jobs: in the transaction that deletes them, and later by upkeep, since a run under way may come back to wait (a
-- failed attempt, a lost node). `ended` tells upkeep that runs are left; it goes with the last of them. What a claim or
-- a promotion has taken meanwhile is in `seen` and not in `locked`, so it counts as left. Where history has a run
-- already, that stands.
WITH seen AS MATERIALIZED (SELECT job, lane FROM live_runs WHERE job = ANY ($1::bigint[])),
locked AS MATERIALIZED (
    SELECT r.* FROM live_runs r JOIN jobs j ON j.job = r.job AND j.status = 'deleted'
     WHERE r.job = ANY ($1::bigint[]) AND r.owner IS NULL ORDER BY r.job, r.lane FOR UPDATE OF r),
deleted AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
        AND ((r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)
    SELECT job, scheduled_at, token, now(), serial, revision, attempt, 3, 'job deleted' FROM locked
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
flagged AS (
    UPDATE cursors c SET ended = true
     WHERE c.job IN (SELECT job FROM seen WHERE (job, lane) NOT IN (SELECT job, lane FROM locked)) AND NOT c.ended
       AND c.next_tick IS NULL)
SELECT job, scheduled_at, serial FROM locked
