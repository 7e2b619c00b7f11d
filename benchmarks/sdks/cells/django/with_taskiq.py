import importlib.util

print({name: importlib.util.find_spec(name) for name in ("taskiq.django", "taskiq_django")})
print("no: taskiq has no integration with Django")
