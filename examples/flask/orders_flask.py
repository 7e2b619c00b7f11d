"""Enqueue from Flask; a worker apart does the work.

flask --app orders_flask:web run
detent serve --app orders_flask:jobs
"""

import time
from typing import Any

from flask import Flask, request

from detent import Detent
from detent.errors import RunNotFound

jobs = Detent("orders")
web = Flask(__name__)


@jobs.task(max_retries=5)
def prepare(number: int, item: str, quantity: int = 1) -> str:
    time.sleep(0.2)  # takes a while, as real work does
    return f"{number}: {quantity} x {item}"


@web.post("/orders")
def place_order() -> tuple[dict[str, Any], int]:
    order = request.get_json()
    handle = prepare.enqueue_sync(order["number"], order["item"], quantity=order.get("quantity", 1))
    return {"run": handle.id}, 202


@web.get("/orders/<uuid:run>")
def order_progress(run: Any) -> dict[str, Any]:
    handle = prepare.handle_sync(run)
    try:
        status = handle.status()
    except RunNotFound:
        return {"status": "unknown"}
    return {"status": status, "receipt": handle.result() if status == "succeeded" else None}
