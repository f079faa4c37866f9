"""Guardrails: what is looked at on its way in and out, of a model and of a tool."""

from milepost.guardrails.python_rails import rail
from milepost.guardrails.verdicts import PASS, Block, Pass, Rail, Rewrite, Subject, Verdict, Warn

__all__ = ["PASS", "Block", "Pass", "Rail", "Rewrite", "Subject", "Verdict", "Warn", "rail"]
