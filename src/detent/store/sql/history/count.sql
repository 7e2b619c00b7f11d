SELECT count(*) FROM {name}
