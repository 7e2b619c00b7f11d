-- Take the turn to do a task for the whole cluster. $1 task, $2 node, $3 how long a turn is, $4 how often. No row: it
-- is not this node's turn. A turn that ends more than two turns from now is void: the clock stepped back. While ticks
-- are held no node gets a turn: the clock may be wrong, and what is deleted because of its age cannot be restored.
INSERT INTO turns AS t (task, node, until) SELECT $1::text, $2::bigint, now() + $3::interval FROM cluster
 WHERE held_at IS NULL
ON CONFLICT (task) DO UPDATE SET node = excluded.node, until = excluded.until
 WHERE (t.until < now() OR t.until > now() + 2 * $3::interval)
   AND (t.done_at IS NULL OR t.done_at < now() - $4::interval OR t.done_at > now() + $4::interval)
RETURNING task
