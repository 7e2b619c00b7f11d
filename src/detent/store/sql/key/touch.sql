-- Record that a key was used. Skips a locked row: the session that holds the lock is about to write the same. $1 id
UPDATE api_keys SET last_used_at = now()
 WHERE id = (SELECT id FROM api_keys WHERE id = $1::text FOR NO KEY UPDATE SKIP LOCKED)
