"""The worker imports the module `tasks` of every installed app."""

from typing import Any

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from detent.contrib.django import task
from orders.models import Order, Totals


@task(queue_name="mail", max_retries=3, retry_base_seconds=1, no_retry_on=["orders.tasks.UnknownCustomerError"])
def send_receipt(order: int) -> str:
    """Runs only for orders whose transaction has committed, so the order is always there."""
    found = Order.objects.get(pk=order)
    if found.customer.endswith("@nowhere.invalid"):
        raise UnknownCustomerError(f"{found.customer} has no mailbox")
    found.receipt_sent_at = timezone.now()
    found.save()
    return f"sent to {found.customer}"


@task(takes_context=True)
async def count_orders(context: Any, at_least: str = "0") -> dict[str, int]:
    count = await Order.objects.filter(amount__gte=at_least).acount()
    return {"orders": count, "attempt": context.attempt}


@task(cron=settings.TOTALS_CRON, timezone="Europe/Berlin")
def compute_totals() -> str:
    total = Order.objects.aggregate(total=Sum("amount"))["total"] or 0
    Totals.objects.create(amount=total)
    return str(total)


class UnknownCustomerError(Exception):
    """The address of an order does not exist."""
