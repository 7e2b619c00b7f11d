import inspect

from dbos import DBOS, error

print([name for name in dir(error) if name.startswith("DBOS")])
print(list(inspect.signature(DBOS.sleep).parameters))
print("partly: a workflow sleeps durably and calls its step again; returning is the only quiet end")
