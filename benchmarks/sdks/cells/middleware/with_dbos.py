from dbos import DBOS

print(
    [
        name
        for name in dir(DBOS)
        if not name.startswith("_") and ("middle" in name or "intercept" in name or "hook" in name)
    ]
)
print("no: decorate the functions yourself")
