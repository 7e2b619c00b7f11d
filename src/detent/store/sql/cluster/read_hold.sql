-- Since when no tick fires, by whom and why; NULL: ticks fire
SELECT held_at AS at, held_by AS by, held_reason AS reason FROM cluster
