"""A refund that a person must approve. It happens once, whatever happens to the process."""

from signoff import Ended, Paused, Session, Waiting, build_graph
from signoff.models import ScriptedModel, call


def refund(order: int, amount: int) -> str:
    """Pay money back."""
    return f"{amount} paid back for order {order}"


def shown(decision):
    match decision:
        case Ended(outcome=outcome):  # success, limit or error: it says which
            return outcome.model_dump(mode="json")
        case Waiting():  # a question, an approval or an action: what to show, and the id to answer by
            return decision.document()
        case Paused():
            return {"type": "paused"}


model = ScriptedModel([call("refund", order=7, amount=250), call("finish_task", summary="Paid back.")])
with build_graph(model, [refund], approvals={"refund": True}, storage="shop.sqlite") as graph:
    session = Session(graph, "order-7", on_pending="refuse")
    request = shown(session.run("Refund order 7."))
    print(request["action_requests"][0]["args"])
    print(shown(session.resume("approve", request["interrupt_id"], by="ada"))["summary"])
