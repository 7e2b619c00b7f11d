import importlib.metadata

print([point.name for point in importlib.metadata.entry_points(group="console_scripts") if "temporal" in point.value])
print("no: a worker is a program of yours; watchfiles can restart it")
