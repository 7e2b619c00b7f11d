-- Delete the rows of jobs that were deleted so long ago that history has no run of theirs. $1 days, $2 limit. Their
-- runs are not younger than their deletion, so they are only in partitions that begin before it and existed when the
-- last of them ended. A partition that was made later, for an old run of another job, does not keep them.
WITH kept AS MATERIALIZED (
    SELECT b.since, coalesce(p.made_at, '-infinity') AS made_at
      FROM history_bounds b LEFT JOIN history_parts p ON p.name = b.name AND p.dropped_at IS NULL),
gone AS MATERIALIZED (
    SELECT job FROM jobs j
     WHERE status = 'deleted' AND updated_at < now() - make_interval(days => $1::integer)
       AND NOT EXISTS (
           SELECT FROM kept k WHERE k.since <= j.updated_at AND k.made_at <= j.updated_at + interval '1 day')
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND NOT b.parked)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND b.parked)
     ORDER BY updated_at LIMIT $2::integer FOR UPDATE SKIP LOCKED),
purged_cursors AS (DELETE FROM cursors x USING gone WHERE x.job = gone.job),
purged_revisions AS (DELETE FROM job_revisions x USING gone WHERE x.job = gone.job),
purged_segments AS (DELETE FROM segments x USING gone WHERE x.job = gone.job),
purged_skips AS (DELETE FROM skips x USING gone WHERE x.job = gone.job),
purged_catchups AS (DELETE FROM catchups x USING gone WHERE x.job = gone.job),
purged_payloads AS (DELETE FROM run_payloads x USING gone WHERE x.job = gone.job),
purged_dead_letters AS (DELETE FROM dead_letters x USING gone WHERE x.job = gone.job),
purged_alert_events AS (DELETE FROM alert_events x USING gone WHERE x.job = gone.job),
purged_alert_jobs AS (DELETE FROM alert_jobs x USING gone WHERE x.job = gone.job),
purged_steps AS (DELETE FROM run_steps x USING gone WHERE x.job = gone.job),
purged_marks AS (DELETE FROM effect_marks x USING gone WHERE x.scope = gone.job),
purged_keys AS (DELETE FROM unique_keys x USING gone WHERE x.job = gone.job),
purged_places AS (DELETE FROM key_places x USING gone WHERE x.scope = gone.job),
purged_rates AS (DELETE FROM key_rates x USING gone WHERE x.scope = gone.job)
DELETE FROM jobs j USING gone WHERE j.job = gone.job RETURNING j.job
