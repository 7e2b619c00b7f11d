import inspect

from temporalio.client import Client

print(sorted(inspect.signature(Client.start_workflow).parameters))
print("no: the server is another system; no connection can be passed")
