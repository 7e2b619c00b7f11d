import subprocess
import sys

text = subprocess.run([sys.executable, "-m", "detent", "worker", "--help"], capture_output=True, text=True).stdout
assert "--reload" in text
print([line.strip() for line in text.splitlines() if "--reload" in line])
print("yes: detent worker --reload, also for serve; runs under way end first")
