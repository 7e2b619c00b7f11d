-- A role and this database, as statements name them. $1 the role
SELECT quote_ident(rolname) AS role, quote_ident(current_database()) AS database FROM pg_roles WHERE rolname = $1
