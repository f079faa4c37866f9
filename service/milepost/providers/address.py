"""The addresses of vendors, and which of them no request can be sent to."""

import re
from urllib.parse import urlsplit

# As it goes out: letters beyond ASCII are written in others by then.
_HOST = re.compile(rb"[\w.:%-]+")


def is_address(url: str) -> bool:
    """Say whether `url` is one of http:// or https:// with a host that can be asked for."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and port != 0 and bool(_HOST.fullmatch(host))


def host_of(url: str) -> str:
    """Return the host that `url` names; nothing where it names none."""
    return (urlsplit(url).hostname or "") if is_address(url) else ""
