"""APScheduler runs jobs that compute, beside a thread that does little."""

import logging
import time
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

END_S = time.monotonic() + 5
CODE = Path(__file__).read_text() * 8


def job():
    highlight(CODE, PythonLexer(), HtmlFormatter())


scheduler = BackgroundScheduler()
scheduler.add_job(job, "interval", seconds=0.05, max_instances=1)
logging.disable(logging.CRITICAL)
scheduler.start()
while time.monotonic() < END_S:
    time.sleep(0.002)
scheduler.shutdown()
