"""Tools that are requests to somebody's HTTP API."""
