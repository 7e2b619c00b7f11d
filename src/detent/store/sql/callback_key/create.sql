-- Create the first key, unless there is one. $1 key. Of two nodes that begin together, one inserts.
INSERT INTO callback_keys (number, key) SELECT 1, $1::bytea WHERE NOT EXISTS (SELECT FROM callback_keys)
ON CONFLICT (number) DO NOTHING
