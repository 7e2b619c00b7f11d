-- Runs that are not finished, newest first, after a key. The table is small by design and is read completely, except
-- for some jobs. $1 jobs or NULL, $2 scheduled_at, $3 job and $4 serial of the key, $5 statuses or NULL, $6 limit, $7
-- tenant, $8 limits of the caller or NULL
SELECT job, scheduled_at, serial, status, reason, attempt, token, node, revision, started_at, finished_at, result,
       ticks, until
  FROM (SELECT job, scheduled_at, serial,
               CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying'
                   ELSE 'pending' END AS status,
               CASE WHEN cancel THEN 'cancelling' END AS reason, attempt, token, owner AS node, revision, started_at,
               NULL::timestamptz AS finished_at, NULL::text AS result, NULL::integer AS ticks,
               NULL::timestamptz AS until
          FROM live_runs r
         WHERE EXISTS (SELECT FROM jobs j WHERE j.job = r.job AND j.tenant = $7::integer)
           AND ($8::jsonb IS NULL OR within_limits(r.job, $8::jsonb))
           AND ($1::bigint[] IS NULL OR job = ANY ($1::bigint[]))
           AND (scheduled_at, job, serial) < ($2::timestamptz, $3::bigint, $4::integer)) AS live
 WHERE $5::text[] IS NULL OR status = ANY ($5::text[])
 ORDER BY scheduled_at DESC, job DESC, serial DESC LIMIT $6::integer
