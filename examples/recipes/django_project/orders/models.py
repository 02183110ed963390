"""The orders of a shop."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    product = models.IntegerField()
    is_paid = models.BooleanField(default=False)
