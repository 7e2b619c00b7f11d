-- For this transaction only: the statement timeout and the schema of the tables. $1 limit, $2 schema
SELECT set_config('statement_timeout', $1::text, true), set_config('search_path', $2::text, true)
