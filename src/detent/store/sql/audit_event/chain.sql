-- Append events to the chain. $1 the position behind which they go, $2 their ids in order, $3 their hashes
SELECT chain_audit_events($1::bigint, $2::bigint[], $3::bytea[]) AS chained
