-- Whether the table of nodes exists, which the first migration creates.
SELECT to_regclass('nodes') IS NOT NULL
