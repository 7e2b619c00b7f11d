import importlib.util

print([name for name in ("temporalio.contrib.django",) if importlib.util.find_spec(name)])
print("no: no integration")
