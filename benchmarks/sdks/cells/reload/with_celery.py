import subprocess
import sys

text = subprocess.run([sys.executable, "-m", "celery", "worker", "--help"], capture_output=True, text=True).stdout
print([word for word in text.split() if word.startswith("--")])
assert "reload" not in text
print("no: --autoreload was removed in Celery 4; use watchmedo or watchfiles around it")
