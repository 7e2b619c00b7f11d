-- First statement of a release: locks the jobs until the transaction ends, so that the second statement sees every
-- earlier change of them. Jobs that are locked already are left for later. $1 node, $2 jobs
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE)
SELECT job FROM cursors
 WHERE job = ANY ($2::bigint[]) AND EXISTS (SELECT FROM fence) AND (SELECT held_at IS NULL FROM cluster)
 ORDER BY job FOR NO KEY UPDATE SKIP LOCKED
