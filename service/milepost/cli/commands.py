"""The commands."""

from milepost.cli.serve import serve
from milepost.settings import Settings


def main() -> None:
    """Serve."""
    serve(Settings())
