-- Which of these settles had committed although their reply was lost. The rest are stale.
-- Arrays: $1 job, $2 scheduled_at, $3 serial, $4 token. Returns positions, counted from 1.
SELECT v.position FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::bigint[])
       WITH ORDINALITY AS v (job, at, serial, token, position)
 WHERE EXISTS (SELECT FROM run_history h WHERE h.job = v.job AND h.scheduled_at = v.at AND h.serial = v.serial
                  AND h.token = v.token AND h.reason IS DISTINCT FROM 'lost' OFFSET 0)
    OR EXISTS (SELECT FROM attempts a WHERE a.job = v.job AND a.scheduled_at = v.at AND a.serial = v.serial
                  AND a.token = v.token AND a.outcome NOT IN ('lost', 'stale') OFFSET 0)
