"""Routes with a name in their path that somebody else has chosen, of whatever characters."""

import re

from starlette.routing import Route


def taken_whole(route: Route) -> Route:
    """Return the route, whose `{name:path}` has the ends of lines in it as well as slashes.

    To the framework a path ends where its first line does, and so does a name.
    """
    pattern = route.path_regex.pattern.removesuffix("$")
    route.path_regex = re.compile(rf"{pattern}\Z", re.DOTALL)
    return route
