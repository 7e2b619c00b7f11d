-- Set a value that only this session should be able to read. $1 mark
SELECT set_config('detent.doctor', $1::text, false)
