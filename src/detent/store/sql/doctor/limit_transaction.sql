-- For this transaction only: how long a question may take, and where the tables are. $1 limit, $2 schema
SELECT set_config('statement_timeout', $1::text, true), set_config('search_path', $2::text, true)
