-- Whether the product's role still has to be separated from the superuser: it is one itself, or the substitute is left
-- from a separation that was interrupted.
SELECT EXISTS (
    SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper OR rolname = 'detent_substitute') AS superuser,
       EXISTS (SELECT FROM pg_roles WHERE rolname = 'detent') AS role,
       EXISTS (SELECT FROM pg_database WHERE datname = 'detent') AS database
