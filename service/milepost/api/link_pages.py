"""The pages behind an approval's links: plain HTML that runs nothing and loads nothing."""

import base64
import hashlib
import re
from dataclasses import dataclass
from html import escape

import orjson
from starlette.responses import Response

from milepost.live.frames import rfc3339
from milepost.runtime.links import Link
from milepost.store.approvals import ApprovalRow

COMMENT_CHARS_MAX = 1_000

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c1e21;background:#fff}"
    "pre{background:#f4f5f7;padding:.75rem;border-radius:.4rem;white-space:pre-wrap;"
    "overflow-wrap:anywhere}"
    "dt{font-weight:600}dd{margin:0 0 .75rem}"
    "textarea{width:100%;box-sizing:border-box;font:inherit}"
    "button{font:inherit;font-weight:600;padding:.6rem 1.4rem;border:0;border-radius:.4rem;"
    "color:#fff;background:#1a6b3c;cursor:pointer}"
    "button.deny{background:#a3262a}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# What no font draws, and what turns a line around: Unicode's ignorable code points, and controls.
_UNSEEN = re.compile(
    "[\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex, nofollow",
}
_WORDS = {
    "approve": ("Approve this call?", "Approve", "approve"),
    "deny": ("Deny this call?", "Deny", "deny"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """A page that says how it stands."""

    status: int
    title: str
    text: str


UNKNOWN = Told(
    404,
    "This link is not valid",
    "It is not one of ours, or a part of it is missing. Open it from the message again.",
)
LATE_PAGE = Told(
    403,
    "This page is too old",
    "Nothing was decided. Open the link from the message again, and decide there.",
)
FOREIGN_PAGE = Told(
    403,
    "This did not come from our page",
    "Nothing was decided. Open the link from the message again, and decide there.",
)
NO_LONGER = Told(
    410,
    "This link was taken back",
    "The webhook that sent it is gone or disabled. Nothing was decided here.",
)
EXPIRED = Told(
    410, "This link has expired", "Nobody decided in time. Nothing can be decided here any more."
)
WITHDRAWN = Told(
    410, "Nothing is left to decide", "The question fell away: its run is over, or asks no more."
)
EDITED = Told(
    409,
    "The call was edited meanwhile",
    "This link was for the call as it was before. Nothing was decided here; look for a newer"
    " message, or decide in the inbox.",
)
ERASED = Told(
    409,
    "You are being erased here",
    "All that there is of you is being erased, so nothing was decided under your name."
    " Somebody else can decide.",
)
NOT_YOURS = Told(
    403,
    "This link may not decide this",
    "The approval wants somebody else's answer, or a person's who is known by name.",
)


def confirmation(row: ApprovalRow, link: Link, nonce: str) -> Response:
    """Return the page that asks whether it is meant: its button decides, opening it does not."""
    title, button, kind = _WORDS[link.decision]
    return _page(
        200,
        title,
        f"<p>{_seen(row.agent)} wants to call <strong>{_seen(row.tool)}</strong>.</p>"
        f"{_details(row)}"
        '<form method="post" autocomplete="off">'
        f'<input type="hidden" name="nonce" value="{escape(nonce)}">'
        '<p><label>Comment (optional)<br><textarea name="comment" rows="2"'
        f' maxlength="{COMMENT_CHARS_MAX}"></textarea></label></p>'
        f'<p><button class="{kind}">{button}</button></p></form>'
        f"<p>You decide as {_seen(link.approver or 'whoever holds this link')}.</p>",
    )


def decided(row: ApprovalRow, *, earlier: bool = False) -> Response:
    """Return the page that says what was decided: here, or `earlier` by anybody."""
    if row.status == "pending":
        return told(
            Told(
                200,
                "Your vote was counted",
                f"{row.required} are required, so others have to decide, too.",
            )
        )
    title = f"Already {row.status}" if earlier else row.status.capitalize()
    by = f" by {_seen(row.decided_by)}" if row.decided_by else ""
    said = f"<p>The call was {escape(row.status)}{by}.</p>"
    return _page(409 if earlier else 200, title, said + _details(row))


def told(page: Told) -> Response:
    """Return a page that says how it stands."""
    return _page(page.status, page.title, f"<p>{escape(page.text)}</p>")


def _details(row: ApprovalRow) -> str:
    arguments = orjson.dumps(orjson.loads(row.arguments), option=orjson.OPT_INDENT_2).decode()
    told = {
        "In short": f"<pre>{_seen(row.preview)}</pre>",
        "Arguments": f"<pre>{_seen(arguments)}</pre>",
        "Why it is asked": _seen(row.reason),
        "For": _seen(row.user or "nobody in particular"),
        "Until": escape(rfc3339(row.expires_ms)),
        "Approval": f"{escape(row.id)}, {escape(row.digest)}",
    }
    return (
        "<dl>" + "".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in told.items()) + "</dl>"
    )


def _seen(text: str) -> str:
    """Return a text for a page on which nothing hides: what nobody would see is spelled out."""
    return escape(_UNSEEN.sub(_spelled, text))


def _spelled(unseen: re.Match[str]) -> str:
    return "".join(f"\\u{unit}" for unit in unseen[0].encode("utf-16-be").hex(" ", 2).split())


def _page(status: int, title: str, body: str) -> Response:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow">'
        f"<title>{escape(title)} · Milepost</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return Response(html, status, _HEADERS, "text/html")
