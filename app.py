"""Starts the page: ``python app.py``, then open the address that it prints."""

import sys

from specviz.errors import UsageError

try:
    from specviz.ui.page import build, launch

    demo = build()
    if __name__ == "__main__":
        launch(demo)
except UsageError as error:  # a setting that cannot be
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
