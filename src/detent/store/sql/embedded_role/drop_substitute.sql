DROP ROLE IF EXISTS detent_substitute
