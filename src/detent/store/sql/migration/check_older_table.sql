-- Whether the table of migrations was made before they recorded their compatibility.
SELECT NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'schema_migrations'::regclass AND attname = 'compatible'
        AND NOT attisdropped)
