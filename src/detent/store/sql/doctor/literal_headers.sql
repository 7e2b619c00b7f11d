-- Among the newest $1 HTTP jobs, those whose headers hold a credential as plain text: how many, and the name of one
WITH newest AS MATERIALIZED (
    SELECT name, definition FROM jobs WHERE target = 'http' AND status <> 'deleted' ORDER BY job DESC LIMIT $1::integer)
SELECT count(*)::integer AS jobs, min(name) AS name
  FROM newest
 WHERE EXISTS (
    SELECT FROM jsonb_each(definition->'target'->'headers') h
     WHERE jsonb_typeof(h.value) = 'string'
       AND h.key ~* '^(authorization|cookie|proxy-authorization|.*-(key|token|secret))$')
