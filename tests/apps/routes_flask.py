"""A Flask application with routes that take parameters."""

from flask import Blueprint, Flask

app = Flask(__name__)
shop = Blueprint("shop", __name__, url_prefix="/shop")


@app.get("/users/<int:number>")
def user(number):
    return f"{number}\n"


@app.get("/raises/<word>")
def raises(word):
    raise RuntimeError(word)


@shop.get("/<category>/<item>")
def item(category, item):
    return f"{category} {item}\n"


app.register_blueprint(shop)
