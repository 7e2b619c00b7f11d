-- Nodes are known from the first migration on.
SELECT to_regclass('nodes') IS NOT NULL
