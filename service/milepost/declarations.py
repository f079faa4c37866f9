"""What the settings name: tools, agents, providers and prices, read and found fit to be used."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from milepost.core.agents import Agent
from milepost.core.errors import ConfigurationError, InvalidError, ToolValidationError
from milepost.providers.catalog import Catalog
from milepost.providers.declared import DeclaredProvider, known_vendors
from milepost.providers.price_file import read_prices
from milepost.providers.providers_file import DEFAULT_FILE, read_providers
from milepost.providers.tariff import Tariff
from milepost.runtime.agent_spec import require_known
from milepost.runtime.agents_file import read_agents
from milepost.runtime.demo_agent import DEMO_AGENT
from milepost.settings import Settings
from milepost.telemetry.logs import logger
from milepost.tools import Registry, load
from milepost.tools.loader import files_of
from milepost.tools.toolbox.demo import demo_tools
from milepost.tools.tools_file import Outside, declared_tools


def listed(text: str) -> Sequence[str]:
    """Return what a setting names, which stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def load_tools(settings: Settings) -> Registry:
    """Return the tools that the settings name, but for those of files that are watched.

    Raises `ConfigurationError` for a broken one.
    """
    registry = Registry()
    if settings.demo:
        chosen = listed(settings.toolbox)
        # The demo tells the time as the toolbox does: whoever names the tool gets it once.
        demo = demo_tools(settings.state_dir)
        registry.add(*(tool for tool in demo if tool.name not in chosen))
    for spec in listed(settings.tools):
        if spec.endswith(".toml"):
            continue  # Declares tools elsewhere, which are asked for later.
        if spec in watched_files(settings):
            continue
        try:
            registry.add(*load(spec))
        except ToolValidationError as error:
            raise ConfigurationError(f"the tools of {spec}: {error}") from error
    return registry


def watched_files(settings: Settings) -> Sequence[str]:
    """Return the files and folders of tools that are loaded anew when they change."""
    if not settings.reload_tools:
        return []
    return [spec for spec in listed(settings.tools) if spec[-5:] != ".toml" and files_of(spec)]


def tell_unwatched(settings: Settings) -> None:
    """Tell what does not change before the next start, though tools are reloaded."""
    watched = watched_files(settings)
    unwatched = [spec for spec in listed(settings.tools) if spec not in watched]
    if settings.reload_tools and (unwatched or not watched):
        logger("tools").warning(
            "only files and folders of Python are loaded anew; for the rest, start again",
            watched=watched,
            unwatched=unwatched,
        )


async def declare_tools(settings: Settings, registry: Registry, outside: Outside) -> None:
    """Add the tools that files declare; their servers must answer.

    Raises `ConfigurationError` for a broken one.
    """
    for spec in listed(settings.tools):
        if not spec.endswith(".toml"):
            continue
        try:
            registry.add(*await declared_tools(Path(spec), outside))
        except ToolValidationError as error:
            raise ConfigurationError(f"tools file {spec}: {error}") from error


def load_agents(
    settings: Settings, tools: Registry, providers: Catalog, rails: Collection[str] = ()
) -> dict[str, list[Agent]]:
    """Return the agents that the settings describe, by the file that does.

    Raises `ConfigurationError` for one that could not run here, or that is described twice: each
    start would make the one a new version of the other.
    """
    described = {"the demo": [DEMO_AGENT]} if settings.demo else {}
    for name in listed(settings.agents):
        for agent in read_agents(Path(name)):
            if any(agent.name == other.name for each in described.values() for other in each):
                raise ConfigurationError(
                    f"agents file {name}: there is an agent {agent.name!r} already; rename one"
                )
            try:
                known = require_known(agent, tools, providers, rails)
            except InvalidError as error:
                raise ConfigurationError(
                    f"agents file {name}: agent {agent.name!r}: {error}"
                ) from error
            described.setdefault(name, []).append(known)
    return described


def load_providers(settings: Settings) -> dict[str, DeclaredProvider]:
    """Return the providers that are declared: by the file, and by the keys of vendors.

    Raises `ConfigurationError` for a file that cannot be used.
    """
    keys = {
        "OPENAI_API_KEY": settings.openai_api_key,
        "ANTHROPIC_API_KEY": settings.anthropic_api_key,
        "GEMINI_API_KEY": settings.gemini_api_key,
    }
    given = {variable: key.get_secret_value() for variable, key in keys.items() if key}
    environment = {**os.environ, **given}
    declared = known_vendors(environment, settings.openai_base_url)
    file = Path(settings.providers or DEFAULT_FILE)
    if settings.providers or file.is_file():
        found = read_providers(file, environment)
        logger("providers").info(f"providers from {file}: {', '.join(found)}")
        declared |= found
    return declared


def load_prices(settings: Settings, providers: Catalog) -> dict[str, Tariff]:
    """Return the prices that the settings name, by `provider/model`.

    Raises `ConfigurationError` for one of a provider that is not here: it would never be looked up.
    """
    prices = read_prices(Path(settings.prices)) if settings.prices else {}
    for name in prices:
        try:
            providers.get(name.partition("/")[0])
        except InvalidError as error:
            raise ConfigurationError(f"prices file {settings.prices}: {name}: {error}") from error
    return prices
