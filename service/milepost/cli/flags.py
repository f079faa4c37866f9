"""Every setting as a flag: made from `Settings`, so that no setting is described twice."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Concatenate, ParamSpec, get_args, get_type_hints

import typer
from pydantic.fields import FieldInfo

from milepost.settings import Settings, flag, load_settings, variable

P = ParamSpec("P")

CLIENT = ("base_url", "api_key")
SERVING = ("port", "queue_max", "requests_per_minute", "confirmations", "console")
WORKING = ("probe_port",)
SERVER = tuple(name for name in Settings.model_fields if name not in (*CLIENT, *WORKING))
WORKER = tuple(name for name in Settings.model_fields if name not in (*CLIENT, *SERVING))
DATABASE = ("database_url", "log_level", "log_json")
KEYS = ("database_url", "migrate")


def with_settings(
    names: Iterable[str],
) -> Callable[[Callable[Concatenate[Settings, P], None]], Callable[..., None]]:
    """Give a command the flags of these settings, and its function the settings as they are then.

    The function takes the settings first; what else it takes becomes flags and arguments as usual.
    """
    flags = {name: _parameter(name, Settings.model_fields[name]) for name in names}

    def decorate(command: Callable[Concatenate[Settings, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            settings = load_settings({name: given.pop(name) for name in flags})
            command(settings, **given)  # type: ignore[call-arg]  # typer gives what the signature says

        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [*(each for each in own if each.name != "settings"), *flags.values()]
        hints = get_type_hints(command, include_extras=True)
        del hints["settings"]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {**hints, **{each.name: each.annotation for each in parameters}}
        return called

    return decorate


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return the flag. It has no default: what is not given may be in the environment."""
    plain = flag(name)
    words = f"{plain}/--no-{plain[2:]}" if field.annotation is bool else plain
    kind = _kind(field)
    option = typer.Option(words, help=_help(name, field), show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _kind(field: FieldInfo) -> type:
    """Return as what the flag is read, be it that the setting may be unset as well."""
    taken = {field.annotation, *get_args(field.annotation)}
    return next((kind for kind in (bool, int, float) if kind in taken), str)


def _help(name: str, field: FieldInfo) -> str:
    default = _shown(field.default)
    told = f" [default: {default}]" if default else ""
    return f"{field.description} [env: {variable(name)}]{told}"


def _shown(default: object) -> str:
    match default:
        case None:
            return ""
        case bool():
            return "yes" if default else "no"
        case _:
            return str(default)
