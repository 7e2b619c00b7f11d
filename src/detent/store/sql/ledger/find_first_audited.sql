-- The first time after $2 at which some jobs have something to audit: a span that reaches beyond it, a row of history,
-- or a job without a cursor; NULL: nothing.
-- $1 jobs, $2 after, $3 until
SELECT least((SELECT min(greatest(since, $2::timestamptz)) FROM spans
               WHERE job = ANY ($1::bigint[]) AND since < $3::timestamptz
                 AND (until IS NULL OR until > $2::timestamptz)),
             (SELECT min(h.scheduled_at) - interval '1 microsecond' FROM unnest($1::bigint[]) AS v (job)
                 CROSS JOIN LATERAL (
                  SELECT scheduled_at FROM run_history
                   WHERE job = v.job AND scheduled_at > $2::timestamptz AND scheduled_at <= $3::timestamptz
                   ORDER BY scheduled_at LIMIT 1) h),
             (SELECT min(greatest(next_tick - interval '1 microsecond', $2::timestamptz)) FROM catchups
               WHERE job = ANY ($1::bigint[]) AND next_tick <= $3::timestamptz AND until > $2::timestamptz),
             (SELECT min(greatest(j.created_at, $2::timestamptz)) FROM jobs j
               WHERE j.job = ANY ($1::bigint[]) AND j.status <> 'deleted'
                 AND NOT EXISTS (SELECT FROM cursors c WHERE c.job = j.job))) AS since
