"""Which failures are their vendor's trouble, so that another one may help."""

from milepost.core.errors import ProviderError
from milepost.providers.failures import STREAM_CUT

CIRCUIT_OPEN = "provider_circuit_open"

# Another vendor may help even where this one would answer the same again: it knows of no account
# that has run out, and of no certificate that has expired.
_TROUBLES = frozenset(
    {
        CIRCUIT_OPEN, STREAM_CUT, "provider_overloaded", "provider_rate_limited",
        "provider_timeout", "provider_unreachable",
    }
)  # fmt: skip
_PAYMENT_REQUIRED = 402


def in_trouble(error: ProviderError) -> bool:
    """Say whether the vendor is in trouble.

    A request that it refuses, or a key, is for its owner to mend: another model would hide it.
    """
    return error.retryable or error.code in _TROUBLES or error.status == _PAYMENT_REQUIRED


def is_own_limit(error: ProviderError) -> bool:
    """Say whether it is a limit that was set here: a vendor's has the status of its answer."""
    return error.code == "provider_rate_limited" and error.status is None
