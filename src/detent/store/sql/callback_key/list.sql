-- The keys, the newest first.
SELECT key FROM callback_keys ORDER BY number DESC LIMIT 8
