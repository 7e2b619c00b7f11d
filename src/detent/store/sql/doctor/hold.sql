-- Whether all ticks are held, by whom and why.
SELECT held_at, held_by, held_reason FROM cluster
