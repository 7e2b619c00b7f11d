-- Limit how long a list may hold its snapshot: a snapshot that is held for long keeps dead rows from being removed and
-- makes claims slow.
SELECT set_config('statement_timeout', '5s', true)
