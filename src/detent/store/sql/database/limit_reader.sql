-- A list holds a snapshot, and a snapshot that is held for long keeps dead rows alive and makes claims slow.
SELECT set_config('statement_timeout', '5s', true)
