-- Permit a role of this server to enqueue runs of a tenant with the SQL functions. `added`: it could not before;
-- `statements`: what only the owner of the schema can grant. $1 tenant, $2 role
WITH added AS (
    INSERT INTO enqueue_grants (tenant, role) VALUES ($1::integer, $2::text)
    ON CONFLICT DO NOTHING RETURNING granted_at),
-- By name: it fails if there is no such role.
granted AS MATERIALIZED (SELECT grant_enqueue($2::text) AS statements)
SELECT EXISTS (SELECT FROM added) AS added, granted.statements FROM granted
