-- Nodes that are alive and do not know the migrations up to $1, or any live node if that is NULL. Through JSON, because
-- the table of an older schema lacks the column for what its nodes know.
SELECT roles, host, pid FROM nodes n
 WHERE NOT evicted AND expires_at > now() AND coalesce((to_jsonb(n) ->> 'knows')::integer, 0) < coalesce($1::integer,
     10000)
 ORDER BY node
