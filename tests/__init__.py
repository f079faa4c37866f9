"""Milepost's tests; they mirror the tree under service/."""
