-- $1 task, $2 node, $3 how long a turn is. No row: another node has it meanwhile.
UPDATE turns SET until = now() + $3::interval WHERE task = $1::text AND node = $2::bigint AND until > now()
  RETURNING task
