-- Which of these pairs of documents are the same JSON. Arrays: $1, $2. Positions are counted from 1.
SELECT position FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS v (before, after, position)
 WHERE before::jsonb = after::jsonb
