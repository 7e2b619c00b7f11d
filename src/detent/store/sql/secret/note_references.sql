-- Record which secrets jobs refer to. Arrays: $1 job, $2 names as a JSON array, or NULL for none
UPDATE jobs j
   SET secrets = CASE WHEN v.names IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(v.names::jsonb)) END
  FROM unnest($1::bigint[], $2::text[]) AS v (job, names) WHERE j.job = v.job
