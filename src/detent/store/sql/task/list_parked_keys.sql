-- Keys that have parked runs, from one to the next through the index: the guarantee behind task/unpark. $1 job and $2
-- key to begin after, $3 limit.
WITH RECURSIVE keys AS (
    (SELECT job, key, 1 AS nth FROM backlog WHERE parked AND (job, key) > ($1::bigint, $2::text)
      ORDER BY job, key LIMIT 1)
    UNION ALL
    SELECT next.*, keys.nth + 1 FROM keys CROSS JOIN LATERAL (
        SELECT job, key FROM backlog WHERE parked AND (job, key) > (keys.job, keys.key) ORDER BY job, key LIMIT 1) next
     WHERE keys.nth < $3::integer)
SELECT job, key FROM keys
