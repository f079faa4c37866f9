"""Where a picture in a conversation may be: the check of the service, and of whoever embeds it."""

from typing import Annotated

from pydantic import Field

ImageUrl = Annotated[
    str,
    Field(
        pattern=r"^(https://[!-~]{1,2000}|data:image/[a-z0-9.+-]{1,40};base64,[A-Za-z0-9+/]+={0,2})$"
    ),
]
"""An https address, or a picture's bytes as a `data:` URL."""
