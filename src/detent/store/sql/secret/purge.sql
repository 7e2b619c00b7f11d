-- Remove the versions that have expired.
DELETE FROM secret_versions WHERE expires_at <= now()
