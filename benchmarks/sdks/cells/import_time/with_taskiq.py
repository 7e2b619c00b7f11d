import statistics
import subprocess
import sys

CODE = "import time; began = time.process_time(); import taskiq, taskiq_redis; print(time.process_time() - began)"
times = [float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(6)][1:]
median = statistics.median(times) * 1000
print(f"{'yes' if median < 200 else 'partly' if median < 500 else 'no'}: {median:.0f} ms of processor time")
