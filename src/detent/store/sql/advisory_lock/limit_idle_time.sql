-- How long this connection may be idle before the server ends it: the time to live of the locks. $1 with its unit
SELECT set_config('idle_session_timeout', $1, false)
