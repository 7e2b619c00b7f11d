-- The runs $2 of task $1: an array of objects with payload, delay_seconds and so on.
SELECT * FROM detent.enqueue_many($1::text, $2::text::jsonb)
