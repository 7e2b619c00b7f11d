-- At the end of a handler's own transaction, for the settle that follows and until the commit: detent's schema, plan
-- settings and timeouts. From here on the run's row is locked, and a process that is paused now would block its rescue.
-- $1 schema, $2 the limit
SELECT set_config('search_path', $1, true), set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('lock_timeout', $2, true), set_config('idle_in_transaction_session_timeout', $2, true)
