-- $1 task, $2 node
UPDATE turns SET until = now(), done_at = now() WHERE task = $1::text AND node = $2::bigint
