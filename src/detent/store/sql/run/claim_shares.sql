-- As run/claim, with a share for each tenant, so that a long backlog of one leaves capacity for the others. $1 node, $2
-- incarnation; tenants: $3 number, $4 share; where their runs are ready: $5 tenant, $6 queue, $7 priority; $8 as $5 in
-- run/claim.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
shares AS MATERIALIZED (SELECT * FROM unnest($3::integer[], $4::bigint[]) AS t (tenant, share)),
ready AS MATERIALIZED (
    SELECT * FROM unnest($5::integer[], $6::integer[], $7::smallint[]) AS t (tenant, queue, priority)),
picked AS MATERIALIZED (
    SELECT r.* FROM fence, shares s CROSS JOIN LATERAL (
        SELECT x.job, x.lane FROM (
            SELECT queue, priority FROM ready WHERE tenant = s.tenant
             ORDER BY CASE WHEN $8::boolean THEN 0 ELSE priority END DESC, random()) AS ranges
        CROSS JOIN LATERAL (
            SELECT job, lane FROM live_runs
             WHERE queue = ranges.queue AND priority = ranges.priority AND not_before <= now() AND owner IS NULL
               AND lane >= 0
             ORDER BY not_before LIMIT s.share FOR UPDATE SKIP LOCKED) x LIMIT s.share) r),
taken AS (                                   -- by key, as in settle
    UPDATE live_runs r SET owner = $1, token = greatest(r.token, $2::bigint << 22) + 1
     WHERE r.job = ANY (ARRAY(SELECT job FROM picked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM picked)) IS TRUE
    RETURNING r.*)
SELECT job, lane, scheduled_at, serial, token, revision, attempt, crashes, once, cancel, queue,
       CASE WHEN serial >= 201326592 THEN coalesce(payload::text, '') END AS payload, key
  FROM taken
 ORDER BY CASE WHEN $8::boolean THEN 0 ELSE priority END DESC, not_before
