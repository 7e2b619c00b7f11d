-- The runs that this node holds according to the database: after an unknown outcome and every few seconds. $1 node.
-- No index on owner, on purpose: it would cost 75 bytes of WAL per run, and scanning 200,000 live rows takes 13 ms.
SELECT job, lane, scheduled_at, serial, token, revision, attempt, crashes, once, cancel, queue,
       NULL AS payload, key
  FROM live_runs
 WHERE owner = $1
