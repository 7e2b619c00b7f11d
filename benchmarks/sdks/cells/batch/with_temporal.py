from temporalio.client import Client

print([name for name in dir(Client) if "start" in name])
print("no: one request per workflow")
