import subprocess
import sys

text = subprocess.run([sys.executable, "-m", "taskiq", "worker", "--help"], capture_output=True, text=True).stdout
print([line.strip() for line in text.splitlines() if "--reload" in line])
assert "--reload" in text
print("yes: taskiq worker --reload (with the extra `reload`)")
