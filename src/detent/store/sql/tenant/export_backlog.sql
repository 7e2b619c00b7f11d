-- On-demand runs of these jobs that wait, as rows of JSON, in the order of export_runs. $1 jobs in their order, $2
-- limit; behind this key: $3 job, $4 scheduled_at, $5 serial. Two indexes have a part of each job's runs in this order:
-- for each queue and priority those that may start when they are due, and those that are parked or may start at another
-- time.
SELECT r.job, r.scheduled_at AS at, r.serial, 'backlog' AS name,
       to_jsonb(r) || jsonb_build_object('id', run_id(r.job, r.scheduled_at, r.serial)) AS row
  FROM unnest($1::bigint[]) AS v (job)
 CROSS JOIN LATERAL (SELECT CASE WHEN v.job > $3::bigint THEN '-infinity' ELSE $4::timestamptz END AS at,
                            CASE WHEN v.job > $3::bigint THEN 0 ELSE $5::integer END AS serial) behind
 CROSS JOIN LATERAL (
    WITH RECURSIVE heads AS (
        (SELECT queue, keyed, priority FROM backlog WHERE job = v.job AND NOT parked
          ORDER BY queue, keyed, priority LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT queue, keyed, priority FROM backlog WHERE job = v.job AND NOT parked
               AND (queue, keyed, priority) > (heads.queue, heads.keyed, heads.priority)
             ORDER BY queue, keyed, priority LIMIT 1) next)
    SELECT * FROM (
        SELECT b.* FROM heads CROSS JOIN LATERAL (
            SELECT * FROM backlog
             WHERE job = v.job AND queue = heads.queue AND keyed = heads.keyed AND priority = heads.priority
               AND NOT parked AND not_before = scheduled_at AND not_before >= behind.at
               AND (not_before, serial) > (behind.at, behind.serial)
             ORDER BY not_before, serial LIMIT $2::integer) b
        UNION ALL
        (SELECT * FROM backlog
          WHERE job = v.job AND (parked OR not_before <> scheduled_at) AND scheduled_at >= behind.at
            AND (scheduled_at, serial) > (behind.at, behind.serial)
          ORDER BY scheduled_at, serial LIMIT $2::integer)) waiting
     ORDER BY scheduled_at, serial LIMIT $2::integer) r LIMIT $2::integer
