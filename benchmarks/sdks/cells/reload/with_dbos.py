import subprocess
import sys

text = subprocess.run([sys.executable, "-m", "dbos.cli.cli", "start", "--help"], capture_output=True, text=True).stdout
print([word for word in text.split() if word.startswith("--")])
assert "reload" not in text
print("no: the command has no such option; `uvicorn --reload` or `fastapi dev` restart the app that it is in")
