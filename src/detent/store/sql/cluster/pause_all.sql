-- Hold all ticks: no tick fires anywhere from here on. An existing hold keeps its start time. $1 by whom, $2 reason
UPDATE cluster SET held_at = coalesce(held_at, now()), held_by = $1, held_reason = $2 RETURNING held_at, held_by,
       held_reason
