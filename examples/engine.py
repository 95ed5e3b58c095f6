"""Any engine runs threads that calls `drive` at least once: here a queue that delivers every job twice."""

from queue import Queue

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.workers import Order, drive, post

paid: list[int] = []
jobs: Queue[str] = Queue()


def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount}"


def run_thread(thread_id: str) -> None:
    """The engine's job, on any machine. `busy` would mean that another process runs the thread."""
    with sqlite_storage("threads.sqlite") as storage:  # postgres_storage(url) for many machines
        script = [call("pay", amount=50), call("finish_task", summary="50 paid.")]
        graph = build_graph(ScriptedModel(script), [pay], storage=storage)
        print(thread_id, drive(graph, thread_id).state)


def begin(thread_id: str, task: str) -> None:
    """First stores the order durably, with its own ID, then adds the job that makes a process run it."""
    with sqlite_storage("threads.sqlite") as storage:
        post(storage.store, thread_id, Order(f"first task of {thread_id}", task))
    jobs.put(thread_id)
    jobs.put(thread_id)


begin("invoice-7", "Pay invoice 7.")
while not jobs.empty():
    run_thread(jobs.get())
print("paid", paid)
