"""What is stored secret, encrypted with a key that only the process has."""

import base64
import binascii
import os
from functools import lru_cache

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from milepost.core.errors import ConfigurationError, ConflictError

SECRET_KEY_CHARS_MIN = 16
NONCE_BYTES = 12

_VERSION = "v1."
_SALT = b"milepost secrets v1"  # One key an installation: nothing that a salt could tell apart.
_COST = 2**14


class Vault:
    """Seals values with AES-256-GCM, and opens those that it sealed.

    A sealed value is bound to its tenant and name: copied to another row, it does not open. The
    secret key may be a passphrase, so the cipher's key is derived from it with scrypt.
    """

    def __init__(self, secret_key: str | None) -> None:
        """Raises `ConfigurationError` for a secret key that is easily guessed."""
        self._cipher: AESGCM | None = None
        self._key: bytes | None = None
        if secret_key is None:
            return
        if len(secret_key) < SECRET_KEY_CHARS_MIN:
            raise ConfigurationError(
                f"MILEPOST_SECRET_KEY has {len(secret_key)} characters, and less than"
                f" {SECRET_KEY_CHARS_MIN} are easily guessed; make one with"
                " `openssl rand -base64 32`",
                code="weak_secret_key",
            )
        self._key = _derived_from(secret_key)
        self._cipher = AESGCM(self._key)

    @property
    def has_key(self) -> bool:
        """Say whether there is a secret key."""
        return self._key is not None

    def key_for(self, purpose: str) -> bytes | None:
        """Return a key of the secret key's, for this purpose alone; None where there is none."""
        if self._key is None:
            return None
        return HKDFExpand(SHA256(), length=32, info=purpose.encode()).derive(self._key)

    def seal(self, tenant: str, name: str, value: str) -> str:
        """Return the value encrypted. Raises `ConflictError` where there is no secret key."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ready().encrypt(nonce, value.encode(), _bound_to(tenant, name))
        return _VERSION + base64.urlsafe_b64encode(nonce + sealed).decode()

    def open(self, tenant: str, name: str, sealed: str) -> str:
        """Return the value that was sealed for this tenant under this name.

        Raises `ConfigurationError` if it was sealed with another key, or is not what it was.
        """
        cipher = self._ready()
        try:
            raw = base64.urlsafe_b64decode(sealed.removeprefix(_VERSION))
            value = cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _bound_to(tenant, name))
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise ConfigurationError(
                f"secret {name!r} cannot be read with this MILEPOST_SECRET_KEY; start with the one"
                " that it was stored with, or store it again",
                code="secret_unreadable",
            ) from error
        return value.decode()

    def _ready(self) -> AESGCM:
        if self._cipher is None:
            raise ConflictError(
                "there is no key to encrypt secrets with, so none is stored or read; set"
                " MILEPOST_SECRET_KEY (`openssl rand -base64 32` makes one) and start again",
                code="no_secret_key",
            )
        return self._cipher


@lru_cache(maxsize=4)
def _derived_from(secret_key: str) -> bytes:
    """Return the cipher's key. It is dear on purpose, so a process derives it once."""
    return Scrypt(salt=_SALT, length=32, n=_COST, r=8, p=1).derive(secret_key.encode())


def _bound_to(tenant: str, name: str) -> bytes:
    return orjson.dumps([tenant, name])
