"""An application with an extension module that refuses interpreters with a GIL of their own."""

import readline

from flask import Flask

app = Flask(__name__)
assert readline
