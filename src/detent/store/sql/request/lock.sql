-- First statement of a request with an idempotency key: no other session can process the same key concurrently. The
-- lock ends with the transaction. $1 the hash of tenant and key, $2 how long the transaction may be idle
SELECT pg_try_advisory_xact_lock($1::bigint) AS held, set_config('idle_in_transaction_session_timeout', $2::text, true)
