-- Restore the settings with which the connection was opened.
SELECT set_config(name, reset_val, false)
FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
