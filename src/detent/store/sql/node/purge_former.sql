-- Delete the records of nodes that ended, after a day, in batches. $1 age, $2 the time as in history/list_expired, $3
-- limit
WITH old AS MATERIALIZED (
    SELECT node FROM former_nodes
     WHERE ended_at < least(now(), $2::timestamptz) - $1::interval AND (SELECT held_at IS NULL FROM cluster)
     ORDER BY ended_at LIMIT $3),
purged_take_overs AS (DELETE FROM node_take_overs WHERE node IN (SELECT node FROM old))
DELETE FROM former_nodes WHERE node IN (SELECT node FROM old) RETURNING node
