-- A second superuser, because none can rename itself. It is dropped at the end of the separation, and marks one that
-- was interrupted.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'detent_substitute') THEN
        CREATE ROLE detent_substitute SUPERUSER LOGIN;
    END IF;
END $$
