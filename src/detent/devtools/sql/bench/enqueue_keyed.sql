-- As enqueue, with concurrency key $3.
SELECT * FROM detent.enqueue($1::text, $2::text::jsonb, concurrency_key => $3::text)
