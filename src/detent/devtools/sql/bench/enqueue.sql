-- One run of task $1 with payload $2, as a program of a user enqueues it.
SELECT * FROM detent.enqueue($1::text, $2::text::jsonb)
