"""`/v1/secrets`: values that are stored encrypted. They go in, and no request gets them out."""

from typing import Annotated

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body
from milepost.api.paging import allow, json_response, listed, page, stretch_of
from milepost.api.requests import caller
from milepost.core.errors import ConflictError, InvalidError
from milepost.live.frames import rfc3339
from milepost.runtime.journal import Ports
from milepost.runtime.secrets import Vault
from milepost.store import alone, audit, secrets
from milepost.store.audit import AuditRow
from milepost.store.work import Work
from milepost.tools.references import SECRET_NAME

SECRETS_MAX = 1_000
VALUE_CHARS_MAX = 65_536


class SecretValue(Body):
    """What `PUT /v1/secrets/{name}` takes."""

    model_config = ConfigDict(hide_input_in_errors=True)

    value: Annotated[str, Field(min_length=1, max_length=VALUE_CHARS_MAX)]


class Secrets:
    """Secrets, over a store and the vault that seals them. All of it needs the scope admin."""

    def __init__(self, ports: Ports, vault: Vault) -> None:
        self._ports = ports
        self._vault = vault

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/secrets", self.search, methods=["GET"]),
            Route("/v1/secrets/{name}", self.put, methods=["PUT"]),
            Route("/v1/secrets/{name}", self.delete, methods=["DELETE"]),
        ]

    async def search(self, request: Request) -> Response:
        """List the names of secrets, in their order."""
        allow(request, "limit", "after", "order")
        principal = caller(request, "admin")
        stretch = page(request, order="asc")
        names = await self._ports.store.read(secrets.names(principal.tenant))
        found = stretch_of(names, stretch, str)
        return listed(found, stretch, lambda name: {"name": name}, str)

    async def put(self, request: Request) -> Response:
        """Store a secret, in the place of an earlier one of that name."""
        allow(request)
        principal = caller(request, "admin")
        name = request.path_params["name"]
        if not SECRET_NAME.fullmatch(name):
            raise InvalidError(
                "a secret's name is a letter or _ and up to 127 letters, digits, _, . or -,"
                f" not {name[:200]!r}",
                code="bad_secret_name",
            )
        body, _ = await read_body(request, SecretValue)
        sealed = self._vault.seal(principal.tenant, name, body.value)
        act = act_of(self._ports, principal, "secret.stored", name, {})
        await self._ports.store.write(stored(principal.tenant, name, sealed, act))
        return json_response({"name": name, "stored_at": rfc3339(act.time_ms)})

    async def delete(self, request: Request) -> Response:
        """Forget a secret."""
        allow(request)
        principal = caller(request, "admin")
        name = request.path_params["name"]
        act = act_of(self._ports, principal, "secret.deleted", name, {})
        await self._ports.store.write(
            audit.written_down(secrets.delete(principal.tenant, name), act)
        )
        return Response(status_code=204)


def stored(tenant: str, name: str, sealed: str, act: AuditRow) -> Work[None]:
    """Keep the secret if there is room for one more, or one of that name."""
    yield from alone.counting(tenant, "secrets")
    present = yield from secrets.names(tenant)
    if len(present) >= SECRETS_MAX and name not in present:
        raise ConflictError(
            f"there are {len(present)} secrets, and {SECRETS_MAX} may be; delete one first",
            code="too_many_secrets",
        )
    yield from audit.written_down(secrets.put(tenant, name, sealed, act.time_ms), act)
