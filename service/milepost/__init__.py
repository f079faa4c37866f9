"""Milepost: agents as a service, where every run is its log."""
