-- What a message about an alert says: counts of each kind since the last message and in all, and some of its jobs,
-- those with new events first. $1 alert, $2 how many jobs
WITH members AS MATERIALIZED (
    SELECT m.*, j.id, j.name FROM alert_jobs m LEFT JOIN jobs j USING (job) WHERE m.alert = $1::bigint),
shown AS (
    SELECT * FROM members ORDER BY fresh > 0 DESC, recovered_at IS NULL DESC, first_at, job, kind LIMIT $2::integer)
SELECT a.opened_at, a.severity, a.events, a.untracked, a.fresh_untracked,
       (SELECT count(DISTINCT job)::integer FROM members) AS jobs,
       (SELECT jsonb_agg(to_jsonb(k))::text FROM (
           SELECT kind, sum(fresh)::bigint AS fresh, sum(events)::bigint AS events, count(*)::integer AS jobs,
                  count(*) FILTER (WHERE fresh > 0)::integer AS fresh_jobs,
                  count(*) FILTER (WHERE recovered_at IS NULL)::integer AS unrecovered
             FROM members GROUP BY kind ORDER BY kind) k) AS kinds,
       (SELECT jsonb_agg(jsonb_build_object(
            'job', s.name, 'job_id', s.id, 'event', s.kind, 'count', s.events, 'new', s.fresh,
            'scheduled_at', s.tick, 'detail', s.detail, 'recovered', s.recovered_at IS NOT NULL,
            'run_id', CASE WHEN s.kind IN ('dead', 'failures') THEN run_id(s.job, s.tick, s.serial) END)
            ORDER BY s.fresh > 0 DESC, s.recovered_at IS NULL DESC, s.first_at, s.job, s.kind)::text
          FROM shown s) AS shown
  FROM alerts a WHERE a.alert = $1::bigint
