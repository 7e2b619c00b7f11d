-- The record of nodes that ended, after a day, some at a time. $1 age, $2 as in expired_history, $3 limit
WITH old AS MATERIALIZED (
    SELECT node FROM former_nodes
     WHERE ended_at < least(now(), $2::timestamptz) - $1::interval AND (SELECT held_at IS NULL FROM cluster)
     ORDER BY ended_at LIMIT $3),
purged_take_overs AS (DELETE FROM node_take_overs WHERE node IN (SELECT node FROM old))
DELETE FROM former_nodes WHERE node IN (SELECT node FROM old) RETURNING node
