"""A cache whose values are signed: what somebody else put there is a miss."""

import hashlib
import hmac

from milepost.providers.cache import CacheStats, ReplyCache

_PURPOSE = b"milepost cache v1"
_MAC_BYTES = hashlib.sha256().digest_size


class SignedCache:
    """Signs values on their way into `inner`, and believes none that it has not signed.

    A signature is bound to the key, so that a value that is copied to another one counts for
    nothing. The values themselves are readable: who must not read them must not reach the cache.
    """

    def __init__(self, inner: ReplyCache, secret_key: str) -> None:
        self._inner = inner
        self._signing_key = hmac.digest(secret_key.encode(), _PURPOSE, hashlib.sha256)

    async def get(self, key: str) -> bytes | None:
        """Return the value, None where it is not there, or not ours."""
        signed = await self._inner.get(key)
        if signed is None:
            return None
        value = signed[_MAC_BYTES:]
        if hmac.compare_digest(signed[:_MAC_BYTES], self._signature(key, value)):
            return value
        await self._inner.delete(key)
        return None

    async def set(self, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> None:
        """Keep `value`, signed, for `ttl_s`."""
        await self._inner.set(key, self._signature(key, value) + value, ttl_s, owner)

    async def delete(self, key: str) -> None:
        """Forget the value, if there is one."""
        await self._inner.delete(key)

    async def clear(self, prefix: str = "") -> int:
        """Forget all values whose keys begin with `prefix`; return how many there were."""
        return await self._inner.clear(prefix)

    async def mark(self, key: str, owner: str, ttl_s: float) -> None:
        """Note whose the value is."""
        await self._inner.mark(key, owner, ttl_s)

    async def forget(self, owner: str) -> int:
        """Forget all values that are the owner's; return how many there were."""
        return await self._inner.forget(owner)

    async def stats(self) -> CacheStats:
        """Return what happened so far; a value that was not ours counts as a hit."""
        return await self._inner.stats()

    async def lock(self, key: str, ttl_s: float) -> str | None:
        """Return a token, or None while another one is out and has not lapsed."""
        return await self._inner.lock(key, ttl_s)

    async def unlock(self, key: str, token: str) -> None:
        """Give the lock back, if `token` still holds it."""
        await self._inner.unlock(key, token)

    def _signature(self, key: str, value: bytes) -> bytes:
        return hmac.digest(self._signing_key, key.encode() + b"\0" + value, hashlib.sha256)
