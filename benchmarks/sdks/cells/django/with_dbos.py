import importlib.util

print(importlib.util.find_spec("dbos.django"))
print("no: no integration; start_workflow in a view works, outside the transaction of the request")
