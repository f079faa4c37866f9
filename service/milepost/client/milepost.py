"""The client of a Milepost server."""

from types import TracebackType
from typing import Self

from milepost.client.agents import Agents
from milepost.client.approvals import Approvals
from milepost.client.batches import Batches
from milepost.client.budgets import Budgets
from milepost.client.channels import Channels
from milepost.client.grants import Grants
from milepost.client.memories import Memories
from milepost.client.patience import Patience
from milepost.client.policies import Policies
from milepost.client.runs import Runs
from milepost.client.schedules import Schedules
from milepost.client.sessions import Sessions
from milepost.client.transport import Transport
from milepost.client.users import Users

BASE_URL = "http://127.0.0.1:8000"
PATIENCE = Patience()


class Milepost:
    """A server, by its resources.

    ```python
    async with Milepost() as milepost:
        run = await milepost.runs.create("demo", "What is 17 + 25?")
        async for event in milepost.runs.stream(run.id):
            print(event.type, event.data)
    ```
    """

    def __init__(
        self,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        *,
        patience: Patience = PATIENCE,
    ) -> None:
        self._transport = Transport(base_url, api_key, patience)
        self.runs = Runs(self._transport)
        self.batches = Batches(self._transport)
        self.schedules = Schedules(self._transport)
        self.approvals = Approvals(self._transport)
        self.channels = Channels(self._transport)
        self.agents = Agents(self._transport)
        self.sessions = Sessions(self._transport)
        self.budgets = Budgets(self._transport)
        self.memories = Memories(self._transport)
        self.policies = Policies(self._transport)
        self.grants = Grants(self._transport)
        self.users = Users(self._transport)

    async def __aenter__(self) -> Self:
        """Give the client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
