-- A migration takes as long as it takes, but never makes others queue behind it for long: DDL that waits for a lock
-- blocks everybody who comes after. Only settings that this server knows: transaction_timeout came with 17.
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN '5s' ELSE '0' END, false)
FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
