"""Starts the page: ``python app.py``, then open the address that it prints."""

from specviz.ui.page import build, launch

demo = build()

if __name__ == "__main__":
    launch(demo)
