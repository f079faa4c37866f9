"""A Python file as a module, always from its source."""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class _Fresh(SourceFileLoader):
    """Compiles the file at each load.

    Python's cache takes a file for unchanged that was changed within the same second and has the
    same length, which is just what happens while somebody writes a tool.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def specification_of(name: str, file: Path) -> tuple[ModuleSpec, SourceFileLoader]:
    """Return how the file is loaded as the module `name`, and what loads it."""
    loader = _Fresh(name, str(file))
    specification = spec_from_file_location(name, file, loader=loader)
    assert specification is not None, "there is one for every file that comes with its loader"
    return specification, loader
