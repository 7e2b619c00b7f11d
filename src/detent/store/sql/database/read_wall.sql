-- The role that is restricted to the rows of one tenant, if this connection may use it, and whether policies apply to
-- the connection's own role.
SELECT (SELECT r.rolname FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
         WHERE p.polrelid = to_regclass('jobs') AND p.polname = 'one_tenant' AND pg_has_role(r.oid, 'MEMBER')) AS role,
       coalesce(row_security_active(to_regclass('jobs')::oid), false) AS policies
