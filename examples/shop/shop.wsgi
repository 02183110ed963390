# A script file, as mod_wsgi's WSGIScriptAlias takes it.
from shop import app as application
