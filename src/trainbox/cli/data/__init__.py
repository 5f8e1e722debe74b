"""`trainbox data`, one file a command."""


def data() -> None:
    """Prepare data sets, list, check and describe them, and clean up after killed preparations."""
