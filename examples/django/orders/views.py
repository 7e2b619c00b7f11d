"""With ATOMIC_REQUESTS, each request is a transaction: an order and its task are committed together, or neither is."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from orders.models import Order
from orders.tasks import count_orders, send_receipt

try:
    from django.tasks import default_task_backend
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:  # Django before 6
    from django_tasks import default_task_backend
    from django_tasks.exceptions import TaskResultDoesNotExist


@csrf_exempt
def create_order(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(customer=request.POST["customer"], amount=request.POST["amount"])
    result = send_receipt.enqueue(order.pk)
    if request.POST.get("broken"):
        raise RuntimeError("the request fails after the enqueue")
    return JsonResponse({"order": order.pk, "result": result.id}, status=201)


@transaction.non_atomic_requests
@csrf_exempt
async def create_order_async(request: HttpRequest) -> JsonResponse:
    order = await Order.objects.acreate(customer=request.POST["customer"], amount=request.POST["amount"])
    result = await count_orders.aenqueue(at_least="0")
    return JsonResponse({"order": order.pk, "result": result.id}, status=201)


def show_result(request: HttpRequest, result_id: str) -> JsonResponse:
    try:
        result = default_task_backend.get_result(result_id)
    except TaskResultDoesNotExist:
        return JsonResponse({"error": "there is no such result"}, status=404)
    return JsonResponse(
        {
            "status": result.status,
            "value": result.return_value if result.status == "SUCCESSFUL" else None,
            "attempts": result.attempts,
            "errors": [{"class": each.exception_class_path, "traceback": each.traceback} for each in result.errors],
        }
    )
