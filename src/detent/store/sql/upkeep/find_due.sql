-- Which upkeep tasks have work, in one query, because mostly there is none. $1 for how long answers are kept, $2 the
-- time as the node knows it, $3 how long before its end a pause counts.
SELECT EXISTS (SELECT FROM cursors WHERE ended) AS ended,
       EXISTS (SELECT FROM pull_leases WHERE ends_at <= now() OR lease_until < now()
           OR lease_until > now() + 2 * lease) AS leases,
       EXISTS (SELECT FROM live_runs WHERE lane < 0) AS waiting,
       EXISTS (SELECT FROM requests WHERE created_at < least(now(), $2::timestamptz) - $1::interval) AS requests,
       EXISTS (SELECT FROM changes WHERE at < now() - interval '2 minutes') AS changes,
       EXISTS (SELECT FROM sessions WHERE expires_at <= least(now(), $2::timestamptz)) AS sessions,
       EXISTS (SELECT FROM jobs WHERE paused_until <= now() + $3::interval AND status = 'paused') AS pauses,
       EXISTS (SELECT FROM catchups) AS catchups,
       EXISTS (SELECT FROM expectations) AS expectations,
       EXISTS (SELECT FROM audit_events WHERE position IS NULL) AS events,
       EXISTS (SELECT FROM backlog) AS backlog
