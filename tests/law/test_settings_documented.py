"""The page of settings and the code say the same: variables, flags, defaults, who takes them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import typer
from typer.core import TyperGroup

from milepost.cli.commands import app
from milepost.settings import Settings, flag, variable
from tests.law.pages import ROOT, text_of

PAGE = ROOT / "docs" / "settings.md"

_ROW = re.compile(r"^\| `(?P<variable>[A-Z_]+)` \|(?P<rest>.*)\|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """A setting, as the page has it."""

    variable: str
    flags: str
    default: str
    commands: str
    meaning: str


def rows_of_the_page() -> list[Row]:
    found = _ROW.finditer(text_of(PAGE))
    return [
        Row(match["variable"], *(cell.strip() for cell in match["rest"].split("|")))
        for match in found
    ]


def rows_of_the_code() -> list[Row]:
    takers = {name: taken_by(name) for name in Settings.model_fields}
    return [
        Row(
            variable(name),
            ", ".join(f"`{word}`" for word in words_of(name)),
            shown(field.default),
            ", ".join(takers[name]),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]


def words_of(name: str) -> list[str]:
    """Return the flags of a setting: a yes or no has two."""
    plain = flag(name)
    is_bool = Settings.model_fields[name].annotation is bool
    return [plain, f"--no-{plain[2:]}"] if is_bool else [plain]


def shown(default: object) -> str:
    """Return a default as its variable would say it; what is off without a value has none."""
    if default is None or default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def taken_by(name: str) -> list[str]:
    """Return the commands that take a setting, a group of them by its name."""
    takers = [command for command, words in commands() if set(words_of(name)) <= words]
    return [*dict.fromkeys(takers)]


def commands() -> Iterator[tuple[str, set[str]]]:
    """Yield each command's first word, and the flags that it takes."""
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    for name, command in top.commands.items():
        leaves = command.commands.values() if isinstance(command, TyperGroup) else [command]
        for leaf in leaves:
            words = ({*parameter.opts, *parameter.secondary_opts} for parameter in leaf.params)
            yield name, set().union(*words)


def test_every_setting_stands_on_the_page_as_it_is() -> None:
    assert rows_of_the_page() == rows_of_the_code()


def test_every_setting_is_a_flag_of_some_command() -> None:
    assert [name for name in Settings.model_fields if not taken_by(name)] == []


def test_a_groups_commands_take_the_same_settings() -> None:
    known = {word for name in Settings.model_fields for word in words_of(name)}
    taken: dict[str, list[set[str]]] = {}
    for name, words in commands():
        taken.setdefault(name, []).append(words & known)

    uneven = [name for name, sets in taken.items() if any(each != sets[0] for each in sets)]

    assert uneven == []
