"""A worker: slots that drive runs, a lease that says it lives, and the sweep behind the dead."""
