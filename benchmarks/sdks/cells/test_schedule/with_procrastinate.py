from procrastinate import periodic, testing

print([name for name in dir(testing) if name[0].isupper()], [name for name in dir(periodic) if name[0].isupper()])
print("no: the in-memory connector has no clock; schedules are tested by waiting, or by patching time")
