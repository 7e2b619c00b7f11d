-- Mark an effect as done, in the transaction of the effect. $1 node, $2 job, $3 lane, $4 scheduled_at, $5 serial, $6
-- token, $7 key, $8 whether all jobs of the tenant share it, $9 how long the mark is kept. `held`: this node still
-- holds the run. `first`: the effect has not happened; the mark exists when the transaction commits. A second caller
-- waits here, at the primary key, until the first has committed or failed. A mark that is no longer kept counts as
-- absent, whether or not it has been removed. On a handler's connection, as add_step. $10: after so many milliseconds
-- without a statement the attempt is over and cannot commit, so the server ends the transaction of a handler that hangs
-- or of a node that is paused, which would keep all other callers of the key waiting.
WITH held AS MATERIALIZED (
    SELECT r.job, r.scheduled_at, r.serial, CASE WHEN $8::boolean THEN -j.tenant::bigint ELSE r.job END AS scope
      FROM "{schema}".live_runs r JOIN "{schema}".jobs j ON j.job = r.job
     WHERE r.job = $2::bigint AND r.lane = $3::integer AND r.scheduled_at = $4::timestamptz AND r.serial = $5::integer
       AND r.token = $6::bigint AND r.owner = $1::bigint),
marked AS (
    INSERT INTO "{schema}".effect_marks AS mark (scope, key, job, scheduled_at, serial, kept_until)
    SELECT scope, $7::text, job, scheduled_at, serial, clock_timestamp() + $9::interval FROM held
     WHERE NOT EXISTS (SELECT FROM "{schema}".effect_marks m
                        WHERE m.scope = held.scope AND m.key = $7::text AND m.kept_until > clock_timestamp())
    ON CONFLICT (scope, key) DO UPDATE
       SET job = excluded.job, scheduled_at = excluded.scheduled_at, serial = excluded.serial,
           done_at = excluded.done_at, kept_until = excluded.kept_until
     WHERE mark.kept_until <= clock_timestamp()
    RETURNING key)
SELECT EXISTS (SELECT FROM held) AS held, EXISTS (SELECT FROM marked) AS first,
       CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
            THEN set_config('idle_in_transaction_session_timeout', $10::text, true) END AS idle
