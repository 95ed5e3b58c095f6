"""Threads on many machines: submitted to a queue in PostgreSQL, and driven by workers."""

from signoff.workers.driving import Driven, drive
from signoff.workers.inbox import Order, post
from signoff.workers.submitting import pause, submit

__all__ = ["Driven", "Order", "drive", "pause", "post", "submit"]
