-- End one session, and delete those that have expired. $1 digest
DELETE FROM sessions WHERE digest = $1::bytea OR expires_at <= now()
