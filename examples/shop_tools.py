"""Tools of a small shop: one only looks, one may be repeated safely, one must never be.

make run ARGS="--tools examples/shop_tools.py --agents examples/agents.toml"
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Literal

from milepost import ToolContext, tool

BOOKS = Path(".milepost/shop.db")
PRICES_CENTS = {"teapot": 2900, "cup": 700, "tray": 1500}

Article = Literal["teapot", "cup", "tray"]


@tool(effect="read")
def look_up(article: Article) -> dict[str, int | str]:
    """Tell what an article costs, and how many of it are reserved."""
    with _books() as books:
        ((count,),) = books.execute(
            "SELECT coalesce(sum(count), 0) FROM reservations WHERE article = ?", (article,)
        )
    return {"article": article, "price_cents": PRICES_CENTS[article], "reserved": count}


@tool(effect="idempotent")
def reserve(
    article: Article,
    count: Annotated[int, "How many pieces"],
    context: ToolContext,
) -> str:
    """Reserve pieces of an article."""
    # The key is the same for every attempt at this call, so that a repetition changes nothing.
    with _books() as books:
        books.execute(
            "INSERT OR IGNORE INTO reservations VALUES (?, ?, ?)",
            (context.idempotency_key, article, count),
        )
    return f"{count} of {article} reserved"


@tool(effect="once", requires_approval=True)
def refund(
    order: Annotated[int, "The order's number"],
    amount_cents: Annotated[int, "How much to pay back, in cents"],
) -> str:
    """Pay an order back. A person is asked first, and a crash never makes it happen twice."""
    with _books() as books:
        books.execute("INSERT INTO refunds VALUES (?, ?)", (order, amount_cents))
    return f"order {order}: {amount_cents} cents paid back"


@contextmanager
def _books() -> Iterator[sqlite3.Connection]:
    """Open the shop's books for one transaction."""
    BOOKS.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(BOOKS)) as books, books:
        books.execute("CREATE TABLE IF NOT EXISTS reservations (key PRIMARY KEY, article, count)")
        books.execute("CREATE TABLE IF NOT EXISTS refunds (number, amount_cents)")
        yield books
