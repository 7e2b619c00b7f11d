-- Until the end of the transaction: the settings that the user's own statements would have if the role had none of
-- detent's. That is the role's setting for all databases, else the database's setting for all roles, else PostgreSQL's
-- default. $1 names
WITH said AS (
    SELECT s.setrole, s.setdatabase, split_part(c, '=', 1) AS name, substr(c, strpos(c, '=') + 1) AS value
      FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c
     WHERE s.setdatabase = 0 AND s.setrole IN (0, current_user::regrole)
        OR s.setrole = 0 AND s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT set_config(p.name, coalesce(
           (SELECT value FROM said WHERE lower(said.name) = lower(p.name) ORDER BY setrole DESC, setdatabase DESC
            LIMIT 1),
           p.boot_val), true)
  FROM pg_settings p WHERE lower(p.name) = ANY ($1::text[])
