-- The names of a role and of this database, quoted for use in statements. $1 the role
SELECT quote_ident(rolname) AS role, quote_ident(current_database()) AS database FROM pg_roles WHERE rolname = $1
