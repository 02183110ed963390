"""A Flask application with the things that a server must get right for it."""

from wsgiref.validate import validator

from flask import Flask, Response, jsonify, request, stream_with_context

app = Flask(__name__)


@app.get("/")
def index():
    return "hello from Flask\n"


@app.post("/form")
def form():
    return jsonify(form=request.form, query=request.args, cookie=request.cookies.get("a"))


@app.post("/upload")
def upload():
    file = request.files["file"]
    return jsonify(name=file.filename, length=len(file.read()))


@app.post("/raw")
def raw():
    return jsonify(length=len(request.get_data()))


@app.get("/stream")
def stream():
    return Response(stream_with_context(f"{number}\n" for number in range(3)))


@app.get("/error")
def error():
    raise RuntimeError("a Flask view failed")


class Input:
    """Werkzeug calls read() without a size, as PEP 3333 lets it; wsgiref.validate wants one."""

    def __init__(self, stream):
        self.stream = stream

    def read(self, size=-1):
        return self.stream.read(size)

    def readline(self):
        return self.stream.readline()


def with_sizes(environ, start_response):
    environ["wsgi.input"] = Input(environ["wsgi.input"])
    return app(environ, start_response)


validated = validator(with_sizes)
