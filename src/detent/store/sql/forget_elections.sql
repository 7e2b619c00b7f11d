-- The record of take-overs, after a month. $1 age
DELETE FROM elections WHERE at < now() - $1::interval
