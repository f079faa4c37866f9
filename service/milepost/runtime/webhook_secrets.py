"""The secrets that webhooks sign with: how they are made, kept and read."""

import secrets
from contextlib import suppress

from milepost.core.errors import ConfigurationError, ConflictError
from milepost.core.webhooks import PREFIX, SECRET_BYTES, key_of, secret_of, signature
from milepost.runtime.secrets import Vault
from milepost.store.webhooks import WebhookRow


def new_secret() -> str:
    """Return a secret that nobody can guess. It is shown once."""
    return secret_of(secrets.token_bytes(SECRET_BYTES))


def kept(vault: Vault, tenant: str, webhook_id: str, secret: str) -> str:
    """Return what is stored of a secret: sealed, or itself where there is no key to seal with.

    It must be read again to sign, so a hash would not do. Without a secret key it stands in the
    database in the clear, which gives whoever reads that no more than the events it signs.
    """
    return vault.seal(tenant, webhook_id, secret) if vault.has_key else secret


def signatures(vault: Vault, row: WebhookRow, message_id: str, time_ms: int, body: bytes) -> str:
    """Return the header: the signature of each secret that is valid now, the newest first.

    Raises `ConfigurationError` if the newest cannot be read, as one cannot that was sealed with
    another key than the present one. A former one that cannot be read signs nothing: rotating it is
    what people do about that.
    """
    keys = [_key(vault, row, row.secret)]
    if row.secret_before is not None and time_ms < (row.secret_before_until_ms or 0):
        with suppress(ConfigurationError):
            keys.append(_key(vault, row, row.secret_before))
    return " ".join(signature(key, message_id, time_ms // 1000, body) for key in keys)


def _key(vault: Vault, row: WebhookRow, stored: str) -> bytes:
    try:
        secret = stored if stored.startswith(PREFIX) else vault.open(row.tenant, row.id, stored)
    except ConflictError as error:  # There is no key: nothing that waiting would change.
        raise ConfigurationError(str(error), code=error.code) from error
    key = key_of(secret)
    if key is None:
        raise ConfigurationError(
            f"the secret of webhook {row.id} is none; rotate it", code="secret_unreadable"
        )
    return key
