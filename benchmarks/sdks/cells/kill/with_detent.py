import time
from pathlib import Path

from detent_setup import app, free_port, serve, served

STARTS = Path("starts")


@app.task
def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    time.sleep(5)


if __name__ == "__main__":
    with served(__file__):
        pass  # the job is registered
    slow.enqueue_sync()
    first = serve(__file__, free_port())
    while not STARTS.exists():
        time.sleep(0.1)
    first.kill()
    began = time.monotonic()
    with served(__file__):
        while STARTS.read_text() != "xx":
            time.sleep(0.1)
        seconds = time.monotonic() - began
    print(f"again {seconds:.1f} s after the kill")
    print(f"yes: after {seconds:.0f} s, when the lease of the killed process ends; runs of any length")
