"""Seen from outside: spans, their export, metrics and log lines."""
