-- Runs whose lease has expired: run/rescue, for workers that pull. $1 how many losses make a run dead that was alone,
-- $2 limit. The lease is locked first and checked again under the lock, so that a concurrent heartbeat either comes
-- before or is refused. An expiry too far ahead is void: the clock stepped back. A lease without a run is only deleted.
-- Accepted runs, whose target and not a worker was silent, are left to pull/lock_expired.
-- What counts against a run: as in run/rescue.
WITH leases AS MATERIALIZED (
    SELECT * FROM pull_leases l
     WHERE (lease_until < now() OR lease_until > now() + 2 * lease) AND ends_at > now()
       AND (accepted_at IS NULL OR NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = l.job AND r.lane = l.lane AND r.token = l.token))
     ORDER BY job, scheduled_at, serial LIMIT $2 FOR UPDATE SKIP LOCKED),
locked AS MATERIALIZED (
    SELECT r.*, r.cancel AS stop, leases.alone AS counts,
           r.started_at IS NOT NULL AND (r.once OR leases.alone AND coalesce(r.lost_alone, 0) + 1 >= $1) AS dead
      -- concurrent claims do not see each other
      FROM (SELECT leases.*, leases.alone_until IS NOT NULL AND NOT EXISTS (
                SELECT FROM pull_leases o WHERE o.worker = leases.worker
                    AND (o.job, o.scheduled_at, o.serial) <> (leases.job, leases.scheduled_at, leases.serial)) AS alone
              FROM leases ORDER BY job, lane) leases CROSS JOIN LATERAL (
        SELECT * FROM live_runs
         WHERE job = leases.job AND lane = leases.lane AND scheduled_at = leases.scheduled_at AND serial = leases.serial
           AND token = leases.token
           AND owner = -leases.worker FOR UPDATE) r),
released AS (
    DELETE FROM pull_leases t USING leases
     WHERE t.job = ANY (ARRAY(SELECT job FROM leases)) AND t.job = leases.job AND t.scheduled_at = leases.scheduled_at
       AND t.serial = leases.serial),
accompanied AS (                             -- runs that are rescued later were not alone either
    UPDATE pull_leases t SET alone_until = NULL
     WHERE t.alone_until IS NOT NULL AND t.worker IN (SELECT worker FROM leases)
       AND (t.job, t.scheduled_at, t.serial) NOT IN (SELECT job, scheduled_at, serial FROM leases)),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, owner, started_at, now(), attempt, 'lost',
           CASE WHEN started_at IS NULL THEN 'the lease ended without a word from its worker; it may not have started'
                WHEN counts THEN 'the lease ended without a word from its worker, which held nothing else'
                ELSE 'the lease ended without a word from its worker' END FROM locked
    ON CONFLICT (job, scheduled_at, serial, token) DO NOTHING),
deleted AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
        AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE dead OR stop)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
        reason, key, payload)
    SELECT job, scheduled_at, token, owner, started_at, now(), serial, revision, attempt, CASE WHEN dead THEN 2
           ELSE 3 END, CASE WHEN replaced AND NOT dead THEN 'replaced' ELSE 'lost' END, key, payload
      FROM locked WHERE dead OR stop
    ON CONFLICT (job, scheduled_at, serial) DO NOTHING),
returned AS (                                       -- as in rescue
    UPDATE live_runs r SET owner = NULL, started_at = NULL, alone = NULL, token = r.token + 1,
           crashes = least(r.crashes + (r.started_at IS NOT NULL OR r.crashes = 0)::integer, 30000),
           attempt = least(r.attempt + (r.started_at IS NOT NULL)::integer, 30000),
           lost_alone = CASE WHEN (r.job, r.lane) IN (SELECT job, lane FROM locked WHERE counts)
           THEN coalesce(r.lost_alone, 0) + 1
                             ELSE r.lost_alone END,
           not_before = now()
     WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM locked
      WHERE NOT dead AND NOT stop)) IS TRUE)
SELECT job, lane, dead, scheduled_at, serial, token, attempt FROM locked
