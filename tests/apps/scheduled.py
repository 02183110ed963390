"""Answers with the policy and the switch interval that the process has now; /pid with its pid."""

import os
import sys
import time

from headway import gil


def application(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(0.2)
    if environ["PATH_INFO"] == "/pid":
        text = str(os.getpid())
    else:
        text = f"{gil.snapshot().to_dict()['policy']} {sys.getswitchinterval():g}"
    answer = text.encode()
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]
