-- Undo tenant/grant_enqueue. Returns a row if the role had the grant. The privilege to call the functions goes with the
-- last grant of the role, unless the role no longer exists. $1 tenant, $2 role
WITH removed AS (
    DELETE FROM enqueue_grants WHERE tenant = $1::integer AND role = $2::text RETURNING role)
SELECT CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $2::text)
             AND NOT EXISTS (SELECT FROM enqueue_grants WHERE role = $2::text AND tenant <> $1::integer)
            THEN revoke_enqueue($2::text) END AS revoked
  FROM removed
