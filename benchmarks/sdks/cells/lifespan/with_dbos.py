from dbos import DBOS

print([name for name in dir(DBOS) if name in ("launch", "destroy", "on_startup", "on_shutdown")])
print("partly: your own program launches and destroys DBOS, with code of yours around it")
