"""Secrets of tenants, as tools are given them: looked up and opened with every call."""

from milepost.core.errors import NotFoundError, ToolError
from milepost.runtime.secrets import Vault
from milepost.store import secrets
from milepost.store.store import Store
from milepost.tools.secret import NOT_FOUND


class StoredSecrets:
    """What tenants have stored, over the vault that sealed it."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, tenant: str, name: str) -> str:
        """Return a secret's value as it is now; raise `ToolError` if the tenant has none such."""
        try:
            sealed = await self._store.read(secrets.get(tenant, name))
        except NotFoundError as error:
            raise ToolError(
                f"there is no secret {name!r}; store it first: PUT /v1/secrets/{name}",
                code=NOT_FOUND,
            ) from error
        return self._vault.open(tenant, name, sealed)
