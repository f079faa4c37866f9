"""Tools that come with Milepost. None is offered to an agent that does not name it."""
