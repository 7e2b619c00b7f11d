-- Everything in this database that the superuser owns and the server itself did not make becomes the product's.
-- REASSIGN OWNED refuses to do so for initdb's superuser. The sequence of a column follows its table; what belongs to
-- an extension stays.
DO $$
DECLARE
    statement text;
BEGIN
    EXECUTE format('ALTER DATABASE %I OWNER TO detent', current_database());
    FOR statement IN
        WITH spaces AS (
            SELECT oid, nspname, nspowner FROM pg_namespace
             WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
        of_extensions AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
        of_columns AS (SELECT objid FROM pg_depend WHERE classid = 'pg_class'::regclass AND deptype IN ('a', 'i'))
        SELECT format('ALTER SCHEMA %I OWNER TO detent', nspname)
          FROM spaces WHERE nspowner = 'detent_admin'::regrole
        UNION ALL
        SELECT format('ALTER %s %I.%I OWNER TO detent', CASE c.relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END,
                      s.nspname, c.relname)
          FROM pg_class c JOIN spaces s ON s.oid = c.relnamespace
         WHERE c.relowner = 'detent_admin'::regrole
           AND (c.relkind IN ('r', 'p', 'v', 'm', 'f', 'c')
                OR c.relkind = 'S' AND c.oid NOT IN (SELECT objid FROM of_columns))
           AND ('pg_class'::regclass::oid, c.oid) NOT IN (SELECT classid, objid FROM of_extensions)
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO detent', p.oid::regprocedure)
          FROM pg_proc p JOIN spaces s ON s.oid = p.pronamespace
         WHERE p.proowner = 'detent_admin'::regrole
           AND ('pg_proc'::regclass::oid, p.oid) NOT IN (SELECT classid, objid FROM of_extensions)
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO detent', t.oid::regtype)
          FROM pg_type t JOIN spaces s ON s.oid = t.typnamespace
         WHERE t.typowner = 'detent_admin'::regrole AND t.typtype IN ('e', 'd', 'r')
           AND ('pg_type'::regclass::oid, t.oid) NOT IN (SELECT classid, objid FROM of_extensions)
    LOOP
        EXECUTE statement;
    END LOOP;
END $$
