-- Whether two documents are the same JSON. $1, $2
SELECT $1::text::jsonb = $2::text::jsonb AS same
