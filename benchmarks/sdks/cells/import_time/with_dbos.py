import statistics
import subprocess
import sys

CODE = "import time; began = time.perf_counter(); import dbos; print(time.perf_counter() - began)"
times = [float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(5)]
median = statistics.median(times) * 1000
print(f"{'yes' if median < 200 else 'partly' if median < 500 else 'no'}: {median:.0f} ms")
