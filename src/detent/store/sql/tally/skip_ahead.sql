-- Move the mark from $1 to $2 after history was not folded for a long time.
UPDATE tally SET folded_until = $2::timestamptz WHERE folded_until = $1::timestamptz
