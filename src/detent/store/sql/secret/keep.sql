-- Those of these secrets that exist, locked against their deletion until the registration that refers to them commits.
-- $1 tenant, $2 names
SELECT name FROM secrets WHERE tenant = $1 AND name = ANY ($2::text[]) ORDER BY name FOR KEY SHARE
