-- Write which circuits of a node are open. $1 node, $2 an array of documents, or NULL: none is. Their times are given
-- in seconds from now on, negative for the past, because the clock of the node need not agree with the database's.
UPDATE nodes SET circuits = (
    SELECT jsonb_agg(c - 'opened' - 'next_probe' || jsonb_build_object(
               'opened_at', now() + (c->>'opened')::float8 * interval '1 second',
               'next_probe_at', now() + (c->>'next_probe')::float8 * interval '1 second'))
      FROM jsonb_array_elements($2::jsonb) AS c)
 WHERE node = $1 AND NOT evicted
