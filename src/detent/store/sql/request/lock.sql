-- First statement of a request with a key: nobody else may do the same meanwhile. The lock ends with the transaction.
-- $1 what stands for tenant and key, $2 how long the transaction may be idle
SELECT pg_try_advisory_xact_lock($1::bigint) AS held, set_config('idle_in_transaction_session_timeout', $2::text, true)
