-- The values of these settings on a connection, whatever set them. $1 their names
SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database,
       ARRAY (SELECT current_setting(name, true) FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place)
        ORDER BY place) AS values
