"""Loading tools from modules, files and folders."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.tools import Invoker, ToolContext, load

ADD = '''
from __future__ import annotations
from dataclasses import dataclass
from milepost.tools import Tool, tool

@dataclass
class Point:
    """A place."""
    x: int

@tool
def add(a: int, b: Point) -> int:
    """Add."""
    return a + b.x

def plain() -> None: ...

again = add
ready = Tool(name="ready", description="Be ready.", function=plain)
'''

MAIL = '''
from milepost.tools import tool

@tool
def mail(to: str) -> str:
    """Mail."""
    return to
'''


def write(path: Path, text: str) -> str:
    """Write a file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


async def test_a_files_tools_are_its_decorated_functions_and_its_tools(
    tmp_path: Path, invoker: Invoker, context: ToolContext
) -> None:
    tools = load(write(tmp_path / "tools.py", ADD))

    assert [tool.name for tool in tools] == ["add", "ready"]
    assert await invoker.invoke(tools[0], {"a": 1, "b": {"x": 2}}, context) == 3


def test_a_folders_files_are_loaded_in_order_without_the_private_ones(tmp_path: Path) -> None:
    write(tmp_path / "tools" / "mail.py", MAIL)
    write(tmp_path / "tools" / "add.py", ADD)
    write(tmp_path / "tools" / "_draft.py", "raise RuntimeError")
    write(tmp_path / "tools" / "words.txt", "not Python")

    assert [tool.name for tool in load(str(tmp_path / "tools"))] == ["add", "ready", "mail"]


def test_a_module_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "corner_shop" / "mailing.py", MAIL)
    write(tmp_path / "corner_shop" / "__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path)

    assert [tool.name for tool in load("corner_shop.mailing")] == ["mail"]


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    first = load(write(tmp_path / "a" / "mail.py", MAIL))
    second = load(write(tmp_path / "b" / "mail.py", MAIL.replace('"""Mail."""', '"""Post."""')))

    assert (first[0].description, second[0].description) == ("Mail.", "Post.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nraise RuntimeError('no')\n", "at line 2: RuntimeError: no"),
        ("def broken(:\n", "at line 1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "at line 2: SystemExit: 3"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        (
            "from milepost.tools import tool\n@tool\ndef f(x: print):\n    'F.'\n",
            "parameter 'x' is annotated",
        ),
        (
            "class Panic(BaseException):\n    pass\nraise Panic('below')\n",
            "at line 3: milepost_tools_",
        ),
        ("x = 1\n", "holds no tools; decorate its functions with @tool"),
    ],
)
def test_a_broken_file_is_a_configuration_error_in_words(
    tmp_path: Path, text: str, words: str
) -> None:
    spec = write(tmp_path / "tools.py", text)

    with pytest.raises(ConfigurationError) as broken:
        load(spec)

    assert words in str(broken.value)
    assert spec in str(broken.value)


def test_what_will_not_be_looked_at_is_no_tool(tmp_path: Path) -> None:
    proxy = "class Proxy:\n    def __getattr__(self, name):\n        1 / 0\nrequest = Proxy()\n"

    [found] = load(write(tmp_path / "tools.py", proxy + MAIL))

    assert found.description == "Mail."


def test_who_interrupts_a_file_that_loads_ends_the_process(tmp_path: Path) -> None:
    spec = write(tmp_path / "tools.py", "raise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        load(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("./nowhere", "there is no folder nowhere"),
        ("x" * 300, "x cannot be loaded: File name too long; name a module, a file that ends"),
        ("x" * 300 + ".py", "x.py cannot be loaded: File name too long; name a module, a file"),
        ("./" + "x" * 300, "x cannot be loaded: File name too long; name a module, a file"),
        ("milepost.nowhere", "there is no module 'milepost.nowhere'"),
        ("no_such_package.tools", "there is no module 'no_such_package.tools'"),
    ],
)
def test_what_is_not_there_is_a_configuration_error(spec: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(spec)


def test_a_file_of_another_kind_is_said_to_be_one(tmp_path: Path) -> None:
    spec = write(tmp_path / "tools.txt", "")

    with pytest.raises(ConfigurationError, match=r"tools\.txt is neither a folder nor a file that"):
        load(spec)


def test_a_module_that_misses_another_is_broken_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "needy_shop.py", "import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigurationError, match=r"needy_shop cannot be loaded.*no_such_module"):
        load("needy_shop")
