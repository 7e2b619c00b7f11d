-- Whether anything in a partition of history ended after $1. For runs the BRIN index answers this; attempts are few.
SELECT EXISTS (SELECT FROM {name} WHERE {ended} > $1::timestamptz) AS late
