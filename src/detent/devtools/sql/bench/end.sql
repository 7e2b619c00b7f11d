-- No more ticks of a herd. $1 first and $2 last job
UPDATE cursors SET next_tick = NULL, fire_at = NULL, generation = generation + 1
 WHERE job BETWEEN $1::bigint AND $2::bigint
