"""A provider as it is declared: whom to ask over which wire, and within which bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from milepost.providers.anthropic import PATIENCE as ANTHROPIC_PATIENCE
from milepost.providers.anthropic_request import Dialect
from milepost.providers.concurrency import QUEUE_S_MAX
from milepost.providers.openai_request import ReasoningField, TokensField
from milepost.providers.reading import Patience
from milepost.providers.responses import PATIENCE as RESPONSES_PATIENCE
from milepost.providers.responses_request import ReasoningSummary
from milepost.providers.windows import Quota

WireName = Literal["openai", "responses", "anthropic", "gemini"]


@dataclass(frozen=True, slots=True)
class Vendor:
    """Where a wire's vendor listens, which variable holds its key, and how slow it may be."""

    base_url: str
    key_variable: str
    patience: Patience = field(default_factory=Patience)


VENDORS: Mapping[WireName, Vendor] = {
    "openai": Vendor("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "responses": Vendor("https://api.openai.com/v1", "OPENAI_API_KEY", RESPONSES_PATIENCE),
    "anthropic": Vendor("https://api.anthropic.com", "ANTHROPIC_API_KEY", ANTHROPIC_PATIENCE),
    "gemini": Vendor("https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"),
}
OLLAMA_BASE_URL = "http://127.0.0.1:11434/v1"


@dataclass(frozen=True, slots=True)
class DeclaredProvider:
    """All that it takes to build one. What may be secret does not show in its `repr`.

    Without a `patience` it is the wire's own. `tokens_field` and `reasoning_field` are for Chat
    Completions, `reasoning_summary` for Responses, the `dialect` for Messages.
    `free` says that no call costs anything, so that its models need no price. Without `schemas` no
    server holds an answer to a JSON Schema, and its models are told of it in words.
    """

    wire: WireName
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    patience: Patience | None = None
    calls_max: int | None = None
    queue_s: float = QUEUE_S_MAX
    quota: Quota = field(default_factory=Quota)
    tokens_field: TokensField | None = None
    reasoning_field: ReasoningField | None = None
    reasoning_summary: ReasoningSummary | None = None
    dialect: Dialect = field(default_factory=Dialect)
    text_tools: bool = False
    schemas: bool = True
    free: bool = False


def known_vendors(
    environment: Mapping[str, str], openai_base_url: str
) -> dict[str, DeclaredProvider]:
    """Return the providers that need no declaration: vendors with a key, OpenAI's wire, and Ollama.

    `openai` is there without a key as well, since servers of one's own that speak it need none.
    """
    declared = {
        "openai": DeclaredProvider("openai", openai_base_url, _key("openai", environment)),
        "ollama": DeclaredProvider("openai", OLLAMA_BASE_URL, free=True),
    }
    for wire in ("anthropic", "gemini"):
        if key := _key(wire, environment):
            declared[wire] = DeclaredProvider(wire, VENDORS[wire].base_url, key)
    return declared


def _key(wire: WireName, environment: Mapping[str, str]) -> str | None:
    return environment.get(VENDORS[wire].key_variable) or None
