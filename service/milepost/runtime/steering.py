"""What people say to a run that is under way: how it is brought to the run, and what it becomes."""

from collections.abc import Mapping
from typing import Any

import orjson

from milepost.core.events import InputMessage, SteerReceived
from milepost.core.messages import Image


def letter_of(said: InputMessage, message_id: str, by: str, key: str | None = None) -> str:
    """Return the letter that brings to a run what somebody says.

    `by` is what they are called, `key` the id of their key, if they have one.
    """
    told = {
        "message_id": message_id,
        "content": said.content,
        "images": [image.url for image in said.images],
        "by": by,
        "key": key,
    }
    return orjson.dumps(told).decode()


def event_in(said: Mapping[str, Any]) -> SteerReceived:
    """Return the event that a letter becomes."""
    images = tuple(Image(str(url)) for url in said["images"])
    message_id, content, by = str(said["message_id"]), str(said["content"]), str(said["by"])
    return SteerReceived(message_id, content, images, by, key=said.get("key"))
