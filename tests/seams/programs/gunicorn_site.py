"""Answers with the id of the worker's process; also gunicorn's configuration."""

import os


def app(environ, start_response):
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def post_worker_init(worker):
    worker.log.info("Worker is ready: %s", worker.pid)
