-- initdb's superuser cannot be demoted: it takes another name, and a new role for the product gets the old one.
ALTER ROLE detent RENAME TO detent_admin
