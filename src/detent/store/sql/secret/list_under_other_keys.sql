-- Versions whose data key is not under this master key. $1 key id, $2 limit
SELECT tenant, name, version, key_id, wrapped, nonce, ciphertext FROM secret_versions
 WHERE key_id <> $1 AND (expires_at IS NULL OR expires_at > now()) ORDER BY tenant, name, version LIMIT $2::integer
