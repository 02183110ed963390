"""A FastAPI application with a light endpoint and a CPU-bound one, both plain functions, which
FastAPI calls in a pool of threads."""

from __future__ import annotations

from fastapi import FastAPI

app = FastAPI()


@app.get("/")
def light() -> str:
    return "hello"


@app.get("/heavy")
def heavy() -> int:
    return sum(number * number for number in range(3_000_000))
