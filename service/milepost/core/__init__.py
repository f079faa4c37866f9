"""The pure heart: what a run is, and what must happen next. No I/O, no clock, no chance."""
