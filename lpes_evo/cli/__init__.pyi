from ._main import app as app, main as main
