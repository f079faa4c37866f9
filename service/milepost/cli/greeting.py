"""What a server says when it is ready: where it is, and what to type first."""

from milepost.settings import Settings
from milepost.store.address import Address, SqliteAddress
from milepost.wiring import Process

_OPEN = "OPEN MODE: there are no API keys, so whoever is on this machine may do everything."
_KEYED = "Callers need a key; the lines below take one from $MILEPOST_API_KEY."
_IDLE = "This process drives no runs itself; `milepost worker` processes do."
_IDLE_ALONE = (
    "This process drives no runs, and beside it on SQLite nobody does:"
    " give it --slots, or a Postgres to share with workers."
)

_CURLS = r"""
Start a run and watch it (it will wait for a person, so go on in a second terminal):
  curl -N {base}/v1/runs{key} -H 'Content-Type: application/json' \
    -d '{{"agent":"demo","input":"Send a mail to ann@example.com that says hello","stream":true}}'

See what waits for a person:
  curl '{base}/v1/approvals?status=pending'{key}

Say yes to the newest:
  curl {base}/v1/approvals/$(curl -s '{base}/v1/approvals?status=pending&limit=1'{key} \
    | grep -o 'apr_[0-9a-z]*' | head -n 1)/decision{key} \
    -H 'Content-Type: application/json' -d '{{"decision":"approve"}}'
"""

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - shown, not bound to


def greeting(settings: Settings, running: Process, port: int) -> str:
    """Return the lines, each of which works as it stands."""
    base = f"http://{_shown(settings.host)}:{port}"
    lines = [f"Milepost serves {base} on {running.address.shown}, {settings.slots} slots."]
    lines.append(_OPEN if running.open_mode else _KEYED)
    if settings.console:
        lines.append(f"Open {base}/ in a browser for the console, {base}/docs for the API.")
    if not settings.slots:
        lines.append(drivers(running.address))
    if settings.demo:
        key = "" if running.open_mode else ' -H "Authorization: Bearer $MILEPOST_API_KEY"'
        lines.append(_CURLS.format(base=base, key=key))
    return "\n".join(lines) + "\n"


def drivers(address: Address) -> str:
    """Return who drives the runs of a server that has no slots: a SQLite file has one process."""
    return _IDLE_ALONE if isinstance(address, SqliteAddress) else _IDLE


def _shown(host: str) -> str:
    host = _WILDCARDS.get(host, host)
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
