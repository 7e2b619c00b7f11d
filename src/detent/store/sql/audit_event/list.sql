-- Events from the newest to the oldest. $1 tenant or NULL for all, $2 also those of no tenant, $3 below this id or
-- NULL, $4 limit; each of these or NULL: $5 beginning of the action, $6 id or name of the actor, $7 id or name of the
-- object, $8 since, $9 until
SELECT id, at, tenant, tenant_name, actor_kind, actor_id, actor_name, address, action, object_kind, object_id,
       object_name, before, after, request_id, position, previous_hash, hash
  FROM audit_events
 WHERE ($1::integer IS NULL OR tenant = $1::integer OR ($2::boolean AND tenant IS NULL))
   AND id < coalesce($3::bigint, 9223372036854775807)
   AND ($5::text IS NULL OR starts_with(action, $5::text))
   AND ($6::text IS NULL OR actor_id = $6::text OR actor_name = $6::text)
   AND ($7::text IS NULL OR object_id = $7::text OR object_name = $7::text)
   AND ($8::timestamptz IS NULL OR at >= $8::timestamptz)
   AND ($9::timestamptz IS NULL OR at < $9::timestamptz)
 ORDER BY id DESC LIMIT $4::integer
