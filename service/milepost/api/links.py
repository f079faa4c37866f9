"""`/approve/{token}` and `/deny/{token}`: an approval answered by whoever was sent a link.

Opening a link decides nothing, however often and by whomever it is opened: programs open links to
look for harm, or to show what is behind them. What decides is the button of the page, which sends
along what only that page has.
"""

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api import link_pages
from milepost.api.access import Principal
from milepost.api.approvals import ApprovalDecision, Approvals
from milepost.api.bodies import read_bytes, require_media
from milepost.api.deciding import Origin
from milepost.api.link_pages import COMMENT_CHARS_MAX, Told
from milepost.core.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from milepost.core.json import clean_text
from milepost.runtime.journal import Ports
from milepost.runtime.links import DECISIONS, Link, Links, may_answer
from milepost.store import approvals, webhooks
from milepost.store.approvals import ApprovalRow
from milepost.store.erasures import UserBeingErasedError
from milepost.store.idempotency import Asked
from milepost.store.records import Request as IdempotentRequest

FORM_BYTES_MAX = 16_384
FORM_FIELDS_MAX = 4


class ApprovalLinks:
    """The pages behind links, over the approvals that they decide."""

    def __init__(self, ports: Ports, links: Links, decisions: Approvals) -> None:
        self._ports = ports
        self._links = links
        self._decisions = decisions

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            route
            for decision in DECISIONS
            for route in (
                Route(f"/{decision}/{{token}}", self.open, methods=["GET"]),
                Route(f"/{decision}/{{token}}", self.decide, methods=["POST"]),
            )
        ]

    async def open(self, request: Request) -> Response:
        """Show what the link would decide, and ask whether that is meant."""
        found = await self._found(request)
        if isinstance(found, Response):
            return found
        link, row = found
        nonce = self._links.nonce(request.path_params["token"], self._ports.clock())
        return link_pages.confirmation(row, link, nonce)

    async def decide(self, request: Request) -> Response:
        """Decide, exactly as a key that may decide would."""
        nonce, comment = await _form(request)
        token, now = request.path_params["token"], self._ports.clock()
        link = self._link(request)
        if link is None:
            return link_pages.told(link_pages.UNKNOWN)
        if self._is_foreign(request):
            return link_pages.told(link_pages.FOREIGN_PAGE)
        if not self._links.knows(nonce, token, now):
            return link_pages.told(link_pages.LATE_PAGE)
        body = ApprovalDecision(decision=link.decision, comment=comment, digest=link.digest)
        # The nonce is kept with the decision: sent twice, it is answered twice, and counts once.
        wish = Asked(
            link.tenant,
            IdempotentRequest("approval link", nonce, link.digest),
            link.approval_id,
            now,
        )
        try:
            if page := await self._bar(link, await self._approval(link)):
                return link_pages.told(page)
            made = await self._decisions.answer(
                principal_of(link), link.approval_id, body, wish, Origin.of(request)
            )
        except (ConflictError, ForbiddenError, NotFoundError) as error:
            return await self._refused(link, error)
        return link_pages.decided(made.resource.approval)

    async def _found(self, request: Request) -> tuple[Link, ApprovalRow] | Response:
        """Return the link and its approval, or the page that says why there is nothing to do."""
        link = self._link(request)
        if link is None:
            return link_pages.told(link_pages.UNKNOWN)
        try:
            row = await self._approval(link)
        except NotFoundError:
            return link_pages.told(link_pages.WITHDRAWN)
        if page := await self._bar(link, row):
            return link_pages.told(page)
        if row.status in {"approved", "denied"}:
            return link_pages.decided(row, earlier=True)
        if page := _closed(row, link, self._ports.clock()):
            return link_pages.told(page)
        return link, row

    def _link(self, request: Request) -> Link | None:
        """Return what the path says, if we have said it: of this decision, not of the other."""
        link = self._links.read(request.path_params["token"])
        said = request.url.path.split("/")[1]
        return link if link is not None and link.decision == said else None

    async def _bar(self, link: Link, row: ApprovalRow) -> Told | None:
        """Return what bars the link from any answer: its webhook, or the approval's terms."""
        try:
            hook = await self._ports.store.read(webhooks.find(link.tenant, link.webhook_id))
        except NotFoundError:
            return link_pages.NO_LONGER
        if not hook.enabled or not hook.approval_links or hook.approver != link.approver:
            return link_pages.NO_LONGER
        return None if may_answer(row, link.approver) else link_pages.NOT_YOURS

    async def _approval(self, link: Link) -> ApprovalRow:
        return await self._ports.store.read(approvals.find(link.tenant, link.approval_id))

    async def _refused(self, link: Link, error: Exception) -> Response:
        """Return the page that says what came before this answer, or stands against it."""
        if isinstance(error, ForbiddenError):
            return link_pages.told(link_pages.NOT_YOURS)
        if isinstance(error, UserBeingErasedError):
            return link_pages.told(link_pages.ERASED)
        try:
            row = await self._approval(link)
        except NotFoundError:
            return link_pages.told(link_pages.WITHDRAWN)
        if row.status in {"approved", "denied"}:
            return link_pages.decided(row, earlier=True)
        page = _closed(row, link, self._ports.clock())
        return link_pages.told(page or link_pages.NOT_YOURS)

    def _is_foreign(self, request: Request) -> bool:
        """Say whether the browser names another page than ours as the one that sends this.

        Our own pages name themselves `null`, since they send no referrer.
        """
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin", "null").lower()
        return site not in {"same-origin", "none"} or origin not in {"null", self._links.origin}


def principal_of(link: Link) -> Principal:
    """Return as whom a link decides: who its webhook names, or whoever that webhook reaches.

    Either is one principal, however many links it is sent. A name is a `user:` of that name, so
    that two webhooks of one person count once, and terms that ask for that user are met.
    """
    known = f"user:{link.approver}" if link.approver else f"link:{link.webhook_id}"
    return Principal(
        tenant=link.tenant,
        id=known,
        name=link.approver or known,
        scopes=frozenset({"approvals:decide"}),
        subject=link.approver,
    )


def _closed(row: ApprovalRow, link: Link, now_ms: int) -> Told | None:
    """Return why an approval that nobody has decided cannot be decided by this link."""
    if row.status == "expired" or now_ms >= min(row.expires_ms, link.expires_ms):
        return link_pages.EXPIRED
    if row.status != "pending":
        return link_pages.WITHDRAWN
    return link_pages.EDITED if row.digest != link.digest else None


async def _form(request: Request) -> tuple[str, str | None]:
    """Return the nonce and the comment of the page."""
    require_media(request, "application/x-www-form-urlencoded")
    raw = await read_bytes(request, FORM_BYTES_MAX)
    try:
        sent = parse_qs(raw.decode(), max_num_fields=FORM_FIELDS_MAX)
    except ValueError as error:
        raise InvalidError(f"this is no form of ours: {error}") from error
    comment = clean_text(sent.get("comment", [""])[0]).strip()
    if len(comment) > COMMENT_CHARS_MAX:
        raise InvalidError(
            f"a comment has at most {COMMENT_CHARS_MAX} characters", pointer="/comment"
        )
    return sent.get("nonce", [""])[0], comment or None
