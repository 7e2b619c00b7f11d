-- How many versions each master key encrypts, without expired ones
SELECT key_id, count(*)::integer AS versions FROM secret_versions WHERE expires_at IS NULL OR expires_at > now()
 GROUP BY key_id ORDER BY key_id
