"""What tenants have stored, as tools are given it."""

import pytest

from milepost.core.errors import ConfigurationError, ToolError
from milepost.runtime.secrets import Vault
from milepost.runtime.stored_secrets import StoredSecrets
from milepost.store import secrets
from tests.runtime.workshop import Workshop

KEY = "correct horse battery staple"


async def test_a_tenant_s_secret_is_opened_as_it_is_now(shop: Workshop) -> None:
    vault = Vault(KEY)
    stored = StoredSecrets(shop.store, vault)

    for value in ("one", "two"):
        sealed = vault.seal("acme", "TOKEN", value)
        await shop.store.write(secrets.put("acme", "TOKEN", sealed, shop.clock()))
        assert await stored.find("acme", "TOKEN") == value


async def test_another_tenant_s_secret_is_not_there(shop: Workshop) -> None:
    vault = Vault(KEY)
    sealed = vault.seal("acme", "TOKEN", "one")
    await shop.store.write(secrets.put("acme", "TOKEN", sealed, shop.clock()))

    with pytest.raises(ToolError, match="there is no secret 'TOKEN'; store it first") as missing:
        await StoredSecrets(shop.store, vault).find("globex", "TOKEN")

    assert missing.value.code == "secret_not_found"


async def test_what_was_sealed_with_another_key_is_not_taken_for_missing(shop: Workshop) -> None:
    sealed = Vault(KEY).seal("acme", "TOKEN", "one")
    await shop.store.write(secrets.put("acme", "TOKEN", sealed, shop.clock()))

    with pytest.raises(ConfigurationError, match="MILEPOST_SECRET_KEY"):
        await StoredSecrets(shop.store, Vault(KEY + "!")).find("acme", "TOKEN")
