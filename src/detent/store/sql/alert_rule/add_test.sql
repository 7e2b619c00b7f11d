-- Make a message that tests the receiver of a rule. $1 rule, $2 its content
INSERT INTO notices (rule, event, content) VALUES ($1::bigint, 'test', $2::jsonb) RETURNING notice
