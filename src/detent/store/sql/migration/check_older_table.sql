-- Whether the table of migrations was made before they said with what they are compatible.
SELECT NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'schema_migrations'::regclass AND attname = 'compatible'
        AND NOT attisdropped)
