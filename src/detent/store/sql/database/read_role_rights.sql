-- A role as statements name it; whether it is exempt from grants (a superuser, or the owner of the tables, also as a
-- member that does not inherit) or from policies; and whether this connection may grant it anything: to others the
-- server only says that nothing was granted. $1 the role
SELECT quote_ident(r.rolname) AS role, r.rolsuper AS superuser, pg_has_role(r.oid, c.relowner, 'MEMBER') AS owner,
       r.rolbypassrls AS bypasses, pg_has_role(c.relowner, 'USAGE') AS grantable
  FROM pg_roles r, pg_class c WHERE r.rolname = $1 AND c.oid = 'jobs'::regclass
