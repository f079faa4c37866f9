"""Pages for people: the console, and the reference of the API. They use the public API only."""
