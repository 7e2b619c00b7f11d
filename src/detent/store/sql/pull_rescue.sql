-- Runs whose lease has run out: rescue, for workers that pull. $1 cap of crashes, $2 limit. The lease is locked first and
-- looked at again under the lock, so that a heartbeat under way either comes before or is refused. An end too far ahead is
-- void: the clock stepped back. A lease without its run is only cleared away.
WITH p AS MATERIALIZED (
    SELECT * FROM pull_leases
     WHERE (lease_until < now() OR lease_until > now() + 2 * lease) AND ends_at > now()
     ORDER BY job, scheduled_at, serial LIMIT $2 FOR UPDATE SKIP LOCKED),
l AS MATERIALIZED (
    SELECT r.*, r.cancel AS stop, r.started_at IS NOT NULL AND (r.once OR r.crashes >= $1) AS dead
      FROM (SELECT * FROM p ORDER BY job, lane) p CROSS JOIN LATERAL (
        SELECT * FROM live_runs
         WHERE job = p.job AND lane = p.lane AND scheduled_at = p.scheduled_at AND serial = p.serial AND token = p.token
           AND owner = -p.worker FOR UPDATE) r),
g AS (
    DELETE FROM pull_leases t USING p
     WHERE t.job = ANY (ARRAY(SELECT job FROM p)) AND t.job = p.job AND t.scheduled_at = p.scheduled_at AND t.serial = p.serial),
a AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, owner, started_at, now(), attempt, 'lost',
           CASE WHEN started_at IS NULL THEN 'the lease ended without a word from its worker; it may not have started'
                ELSE 'the lease ended without a word from its worker' END FROM l),
d AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l WHERE dead OR stop)) IS TRUE),
h AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status, reason)
    SELECT job, scheduled_at, token, owner, started_at, now(), serial, revision, attempt, CASE WHEN dead THEN 2 ELSE 3 END, 'lost'
      FROM l WHERE dead OR stop),
b AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1,
           crashes = r.crashes + (r.started_at IS NOT NULL OR r.crashes = 0)::integer,
           attempt = r.attempt + (r.started_at IS NOT NULL)::integer, not_before = now()
     WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l WHERE NOT dead AND NOT stop)) IS TRUE)
SELECT job, lane, dead, scheduled_at, serial, token, attempt FROM l
