import inspect

from dbos import DBOS

print(list(inspect.signature(DBOS.workflow).parameters), list(inspect.signature(DBOS.step).parameters))
print("no: there are none; DBOSConfiguredInstance is a class of yours whose instances have names")
