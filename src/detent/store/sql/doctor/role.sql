-- What the role of this connection may do beyond its work, and the role of the second wall between tenants if this one
-- may not take it on.
SELECT r.rolname AS role, r.rolsuper AS superuser,
       pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'jobs'::regclass), 'MEMBER') AS owner,
       (SELECT w.rolname FROM pg_policy p JOIN pg_roles w ON w.oid = ANY (p.polroles)
         WHERE p.polrelid = 'jobs'::regclass AND p.polname = 'one_tenant' AND NOT pg_has_role(w.oid, 'MEMBER'))
       AS unused_wall
  FROM pg_roles r WHERE r.rolname = current_user
