-- Sessions that have not ended, the newest first. $1 limit
SELECT digest FROM sessions WHERE expires_at > now() ORDER BY expires_at DESC LIMIT $1::integer
