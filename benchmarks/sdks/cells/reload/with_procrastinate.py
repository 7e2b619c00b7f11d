import subprocess
import sys

text = subprocess.run(
    [sys.executable, "-m", "procrastinate", "worker", "--help"], capture_output=True, text=True
).stdout
print([line.split()[0] for line in text.splitlines() if line.strip().startswith("-")])
assert "reload" not in text
print("no: the worker has no such option")
