-- What the role of this connection may do beyond its work.
SELECT r.rolname AS role, r.rolsuper AS superuser,
       pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'jobs'::regclass), 'USAGE') AS owner
  FROM pg_roles r WHERE r.rolname = current_user
