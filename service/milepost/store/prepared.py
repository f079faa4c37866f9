"""The names of the statements that a session of Postgres keeps prepared."""

NAMES_MAX = 256


class Prepared:
    """Knows those used last: `NAMES_MAX`, and what was new in the last round trip."""

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}
        self._made = 0

    def name_of(self, text: bytes) -> bytes | None:
        """Return the name of a statement that is used now, if it has one."""
        if name := self._names.pop(text, None):
            self._names[text] = name
        return name

    def new_name(self) -> bytes:
        """Return a name that none has had."""
        self._made += 1
        return b"milepost_%d" % self._made

    def keep(self, text: bytes, name: bytes) -> None:
        """Know a statement by this name from now on."""
        self._names[text] = name

    def give_up(self) -> list[bytes]:
        """Return the names of those that are to be kept no longer, where there are too many."""
        if len(self._names) <= NAMES_MAX:
            return []
        unused = list(self._names)[:-NAMES_MAX]
        return [self._names.pop(text) for text in unused]
