"""A program that uses the API: it registers a job, runs it once now, waits for the end and shows what came of it.

    python report_now.py https://example.org/report

DETENT_API_URL says where the server is, http://127.0.0.1:8787 if it is not set; DETENT_API_KEY is sent if it is set.
"""

import sys

from detent import Client


def main(url: str) -> int:
    with Client() as client:
        job, change = client.upsert_job(
            {
                "name": "report",
                "schedule": "0 7 * * MON-FRI",
                "timezone": "Europe/Berlin",
                "target": {"type": "http", "url": url},
                "payload": {"kind": "daily"},
                "max_retries": 0,
            }
        )
        print(f"{job.name}: {change}, {job.description}, next at {job.next_run_at}")
        run = client.wait_for_run(client.trigger_job(job.id).id, timeout=60)
        print(f"{run.status} after {run.duration_ms} ms: {run.result or run.error}")
        return 0 if run.status == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
