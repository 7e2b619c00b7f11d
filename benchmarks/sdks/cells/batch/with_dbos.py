from dbos import DBOS, DBOSClient

print([name for name in dir(DBOS) + dir(DBOSClient) if "enqueue" in name])
print("partly: no call for many; enqueue_in_transaction in a loop is all or none, one statement each")
