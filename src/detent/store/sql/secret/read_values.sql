-- The valid versions of secrets, the newest first. Arrays: $1 tenant, $2 name
SELECT v.tenant, v.name, v.version, v.key_id, v.wrapped, v.nonce, v.ciphertext,
       extract(epoch FROM v.expires_at - now())::double precision AS seconds_left
  FROM unnest($1::integer[], $2::text[]) AS w (tenant, name) JOIN secret_versions v USING (tenant, name)
 WHERE v.expires_at IS NULL OR v.expires_at > now()
 ORDER BY v.tenant, v.name, v.version DESC
