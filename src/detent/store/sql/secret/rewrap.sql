-- Put data keys under another master key; one that was replaced or rewrapped meanwhile is left alone.
-- Arrays: $1 tenant, $2 name, $3 version, $4 former key id, $5 wrapped data key; then $6 the new key id
UPDATE secret_versions s SET key_id = $6, wrapped = v.wrapped
  FROM unnest($1::integer[], $2::text[], $3::integer[], $4::text[], $5::bytea[])
    AS v (tenant, name, version, key_id, wrapped)
 WHERE s.tenant = v.tenant AND s.name = v.name AND s.version = v.version AND s.key_id = v.key_id
RETURNING s.version
