"""Guardrails: what is looked at before a model reads it."""
