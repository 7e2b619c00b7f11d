-- Changes written by transactions that were open when `lowest` was read, or began later, and the `lowest` to continue
-- from: at least one row. $1 the last `lowest`, NULL for the first read, $2 channels
SELECT l.lowest::text::bigint AS lowest, c.id, c.xid::text::bigint AS xid, c.channel, c.payload
  FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS lowest) l
  LEFT JOIN changes c ON c.xid >= $1::bigint::text::xid8 AND c.channel = ANY ($2::text[])
 ORDER BY c.xid, c.id
