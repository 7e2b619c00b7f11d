-- Whether any valid key exists
SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL AND (expires_at > now() OR expires_at IS NULL)) AS found
