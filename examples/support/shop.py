"""The shop's database of orders, and the two tools that touch it."""

import sqlite3
from contextlib import closing


def orders():
    db = sqlite3.connect("orders.sqlite")
    db.executescript("""
        CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT, cents INTEGER);
        CREATE TABLE IF NOT EXISTS refunds (number INTEGER, cents INTEGER);
        INSERT OR IGNORE INTO orders VALUES (7, 'a lamp', 4500), (8, 'a chair', 12000);
    """)
    return closing(db)


def look_up_order(number: int) -> dict:
    """What was ordered, what it cost in cents, and what of that was refunded."""
    with orders() as db:
        row = db.execute("SELECT item, cents FROM orders WHERE number = ?", [number]).fetchone()
        (back,) = db.execute("SELECT total(cents) FROM refunds WHERE number = ?", [number]).fetchone()
    if row is None:
        raise ValueError(f"There is no order {number}.")
    return {"item": row[0], "cents": row[1], "refunded_cents": int(back)}


def refund(number: int, cents: int) -> str:
    """Pay money back for an order. A person approves it first."""
    order = look_up_order(number)
    if not 0 < cents <= order["cents"] - order["refunded_cents"]:
        raise ValueError("A refund is more than nothing, and at most what was paid and not yet refunded.")
    with orders() as db, db:
        db.execute("INSERT INTO refunds VALUES (?, ?)", [number, cents])
    return f"Refunded {cents / 100:.2f} for order {number}."
