import sys
sys.path.insert(0,"/work/main/tests/api")
from test_route_matrix import *
from conftest import *
async def test_probe(api, world):
    for call in calls(await described(api), world):
        a = await ask(api, call, f"Bearer {world.keys['acme']['admin']}")
        b = await ask(api, call, f"Bearer {world.keys['rival']['admin']}")
        print(call.method, call.path, call.scope, str(call.body)[:90], a.status, b.status, (a.document or {}).get("detail","")[:80] if a.status==422 else "")
