-- A migration may take as long as it needs, but must not make others queue behind it for long: DDL that waits for a
-- lock blocks every later statement on the table. Only settings that this server knows: transaction_timeout came with
-- 17.
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN '5s' ELSE '0' END, false)
FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
