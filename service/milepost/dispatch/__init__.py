"""Who says "advance run X": the queue itself, or an engine that somebody runs already."""
