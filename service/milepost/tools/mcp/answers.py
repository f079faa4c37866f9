"""What an MCP server's tool answered, as JSON."""

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from milepost.core.errors import ToolError
from milepost.core.json import Json

ERROR_CHARS_MAX = 2_000


def answer_of(result: CallToolResult) -> Json:
    """Return the structured content if there is any, else the text. Raises ToolError for an error.

    What is neither text nor structured is named in its place.
    """
    parts = [_part(block) for block in result.content]
    if result.is_error:
        told = "\n".join(parts).strip()[:ERROR_CHARS_MAX]
        raise ToolError(told or "it failed, and its server does not say why")
    structured: Json = result.structured_content
    if structured is None:
        return "\n".join(parts) if parts else None
    if all(isinstance(block, TextContent) for block in result.content):
        return structured  # The text says the same, for clients that know no better.
    return {"structured": structured, "content": [*parts]}


def _part(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _marker(block.mime_type, _size(block.data))
        case ResourceLink():
            return f"[resource {block.uri}]"
        case EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(resource, TextResourceContents):
        return resource.text
    return _marker(resource.mime_type or "application/octet-stream", _size(resource.blob))


def _marker(mime_type: str, size: int) -> str:
    return f"[{mime_type}, {size} bytes: not shown]"


def _size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")
