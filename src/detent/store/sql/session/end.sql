-- Ends one session, and those whose time is over. $1 digest
DELETE FROM sessions WHERE digest = $1::bytea OR expires_at <= now()
