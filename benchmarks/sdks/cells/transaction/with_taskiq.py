import inspect

from taskiq import AsyncBroker
from taskiq.kicker import AsyncKicker

print(inspect.signature(AsyncBroker.kick), [name for name in dir(AsyncKicker) if not name.startswith("_")])
print("no: the broker is another system; no connection can be passed")
