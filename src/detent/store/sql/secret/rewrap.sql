-- Put data keys under another master key; one that was replaced or rewrapped meanwhile is left alone. A secret that was
-- deleted and created anew has the same version, and another data key.
-- Arrays: $1 tenant, $2 name, $3 version, $4 former wrapped data key, $5 wrapped data key; then $6 the new key id
UPDATE secret_versions s SET key_id = $6, wrapped = v.wrapped
  FROM unnest($1::integer[], $2::text[], $3::integer[], $4::bytea[], $5::bytea[])
    AS v (tenant, name, version, former, wrapped)
 WHERE s.tenant = v.tenant AND s.name = v.name AND s.version = v.version AND s.wrapped = v.former
RETURNING s.version
