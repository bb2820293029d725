"""Programs that own a store, or race for it, as processes of their own."""

OWN = """
import sys, time
from pathlib import Path
from turnstate.streams.embedded.access import open_store
from turnstate.streams.settings import Settings
with open_store(Settings(data=Path(sys.argv[1]))) as store:
    print(type(store).__name__, flush=True)
    sys.stdin.read()
"""

RACE = """
import json, sys, time
from pathlib import Path
from turnstate.streams.embedded.access import open_store
from turnstate.streams.settings import Settings
data, start, number = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
while not start.exists():
    time.sleep(0.001)
for at in range(5):
    turn = {"tenant": "t", "session": "s" + number, "role": "user", "turn_id": str(at)}
    with open_store(Settings(data=data)) as store:
        answer = store.publish([json.dumps(turn).encode()])[0]
        print(json.dumps([answer.version, at]), flush=True)
"""
