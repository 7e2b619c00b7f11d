-- Nobody folded for a long time: the mark goes from $1 to $2.
UPDATE tally SET folded_until = $2::timestamptz WHERE folded_until = $1::timestamptz
