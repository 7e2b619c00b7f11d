from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    receipt_sent_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"


class Totals(models.Model):
    computed_at = models.DateTimeField(auto_now_add=True)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
