"""The tables of the bookshop."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=80)


class Category(models.Model):
    name = models.CharField(max_length=40)


class Book(models.Model):
    title = models.CharField(max_length=120)
    summary = models.TextField()
    price_cents = models.IntegerField()
    author = models.ForeignKey(Author, models.CASCADE)
    category = models.ForeignKey(Category, models.CASCADE)
    words = SearchVectorField(null=True)

    class Meta:
        indexes = (GinIndex(fields=["words"]),)

    @property
    def price(self) -> str:
        return f"{self.price_cents / 100:,.2f}"


class Review(models.Model):
    book = models.ForeignKey(Book, models.CASCADE)
    reader = models.CharField(max_length=40)
    stars = models.SmallIntegerField()
    text = models.TextField()
