-- $1 name of the tenant, $2 the members of a topic target as JSON, or NULL
UPDATE tenants SET dead_letter_topic = $2::jsonb WHERE name = $1 RETURNING tenant
