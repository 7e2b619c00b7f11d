-- A role as statements name it, and whether it may do anything to the tables without being granted it. $1 the role
SELECT quote_ident(r.rolname) AS role, r.rolsuper AS superuser,
       pg_has_role(r.oid, (SELECT relowner FROM pg_class WHERE oid = 'jobs'::regclass), 'USAGE') AS owner
  FROM pg_roles r WHERE r.rolname = $1
