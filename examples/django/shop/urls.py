from django.contrib import admin
from django.urls import path
from orders import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", views.create_order),
    path("orders/async/", views.create_order_async),
    path("results/<str:result_id>/", views.show_result),
]
