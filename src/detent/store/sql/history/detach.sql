ALTER TABLE {parent} DETACH PARTITION {name} {verb}
