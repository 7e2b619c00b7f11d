-- Claim the runs that a transport has offered, as run/claim does, by their keys. $1 node, $2 incarnation; arrays: $3
-- job, $4 lane, $5 scheduled_at, $6 serial, $7 token. An offer gives no right: it may be old, doubled or of a run that
-- has ended, so a run has to be as it was offered, without an owner, and due. One that another claim has locked is left
-- to that claim. num_nonnulls instead of IS NULL keeps the planner from the index of ready runs, all of which it would
-- read; and as everywhere, an evicted node must not claim after its own rescue.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
picked AS MATERIALIZED (
    SELECT batch.job, batch.lane FROM fence, (
        SELECT * FROM unnest($3::bigint[], $4::integer[], $5::timestamptz[], $6::integer[], $7::bigint[])
            AS t (job, lane, scheduled_at, serial, token) ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT FROM live_runs WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND num_nonnulls(owner) = 0 AND lane >= 0
           AND coalesce(not_before, 'infinity') <= now() FOR UPDATE SKIP LOCKED) r),
taken AS (                                   -- by key, as in settle
    UPDATE live_runs r SET owner = $1, token = greatest(r.token, $2::bigint << 22) + 1
     WHERE r.job = ANY (ARRAY(SELECT job FROM picked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM picked)) IS TRUE
    RETURNING r.*)
SELECT job, lane, scheduled_at, serial, token, revision, attempt, crashes, once, cancel, queue,
       CASE WHEN serial >= 201326592 THEN coalesce(payload::text, '') END AS payload, key
  FROM taken
 ORDER BY priority DESC, not_before
