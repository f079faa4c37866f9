"""The vault: what is sealed opens with the same key, tenant and name, and with nothing else."""

import pytest

from milepost.core.errors import ConfigurationError, ConflictError
from milepost.runtime.secrets import Vault

KEY = "correct horse battery staple"


def test_what_is_sealed_opens_again_in_another_process() -> None:
    sealed = Vault(KEY).seal("acme", "token", "s3cret ü")

    assert "s3cret" not in sealed
    assert Vault(KEY).open("acme", "token", sealed) == "s3cret ü"


def test_the_same_value_is_never_sealed_the_same_way() -> None:
    vault = Vault(KEY)

    assert vault.seal("acme", "token", "x") != vault.seal("acme", "token", "x")


@pytest.mark.parametrize(("tenant", "name"), [("globex", "token"), ("acme", "other")])
def test_a_value_moved_to_another_row_does_not_open(tenant: str, name: str) -> None:
    vault = Vault(KEY)
    sealed = vault.seal("acme", "token", "x")

    with pytest.raises(ConfigurationError) as refused:
        vault.open(tenant, name, sealed)

    assert refused.value.code == "secret_unreadable"


def test_tenant_and_name_do_not_run_into_each_other() -> None:
    vault = Vault(KEY)

    with pytest.raises(ConfigurationError):
        vault.open("a", "bc", vault.seal("ab", "c", "x"))


@pytest.mark.parametrize("sealed", ["", "v1.", "v1.AAAA", "no base64 at all", "v1.ü"])
def test_what_was_never_sealed_does_not_open(sealed: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Vault(KEY).open("acme", "token", sealed)

    assert refused.value.code == "secret_unreadable"


def test_another_key_opens_nothing_and_says_what_to_do() -> None:
    sealed = Vault(KEY).seal("acme", "token", "x")

    with pytest.raises(ConfigurationError, match="MILEPOST_SECRET_KEY"):
        Vault(KEY + "!").open("acme", "token", sealed)


def test_without_a_key_nothing_is_sealed_or_opened() -> None:
    sealed = Vault(KEY).seal("acme", "token", "x")

    with pytest.raises(ConflictError) as sealing:
        Vault(None).seal("acme", "token", "x")
    with pytest.raises(ConflictError) as opening:
        Vault(None).open("acme", "token", sealed)

    assert sealing.value.code == opening.value.code == "no_secret_key"


def test_a_key_that_is_easily_guessed_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Vault("hunter2")

    assert refused.value.code == "weak_secret_key"
