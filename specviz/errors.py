"""The one exception type whose message is meant for a person.

The command line prints it as one line and exits with status 2; the page shows it where it happened.
Everything else is a fault of ours and keeps its traceback.
"""


class UsageError(ValueError):
    """A request that cannot be carried out. The message is one line and says what to do."""
