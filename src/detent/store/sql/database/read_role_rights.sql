-- A role as statements name it, whether it may do anything to the tables without being granted it, and whether this
-- connection may grant it anything: to others the server only says that nothing was granted. $1 the role
SELECT quote_ident(r.rolname) AS role, r.rolsuper AS superuser, pg_has_role(r.oid, c.relowner, 'USAGE') AS owner,
       pg_has_role(c.relowner, 'USAGE') AS grantable
  FROM pg_roles r, pg_class c WHERE r.rolname = $1 AND c.oid = 'jobs'::regclass
