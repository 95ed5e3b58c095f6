"""Plan, execute, think in rounds: after each batch of calls the model looks at what came, then goes on."""

from signoff import build_graph, standard_controls
from signoff.models import ScriptedModel, call, reply

prices = {"apples": 3, "pears": 4, "plums": 5}


def price(fruit: str) -> int:
    """The price of one kilo of fruit."""
    return prices[fruit]


script = [
    call("think", thought="Look all prices up, then add them."),
    reply(call("price", fruit="apples"), call("price", fruit="cherries"), call("price", fruit="pears")),
    call("think", thought="There are no cherries; I take plums in their place."),
    call("price", fruit="plums"),
    call("finish_task", summary="A kilo of each costs 3 + 5 + 4 = 12."),
]
with ScriptedModel(script) as model:
    graph = build_graph(model, [price], control_tools=standard_controls(rounds=True))
    result = graph.invoke({"messages": [("user", "What do a kilo of apples, cherries and pears cost?")]})

for message in result["messages"]:
    if message.type == "ai" and message.tool_calls:
        print(
            *[f"{call['name']}({', '.join(map(str, call['args'].values()))})" for call in message.tool_calls]
        )
print(result["outcome"]["status"])
