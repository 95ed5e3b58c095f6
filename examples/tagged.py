"""A model without tool calling works by text: it plans, runs Python in the sandbox, and corrects itself."""

from signoff import build_graph
from signoff.models import TAGGED_LIMITS, ScriptedModel, TaggedText, current_status
from signoff.tools import choose_sandbox, python_tool

FIRST = """
<PLAN>Sum the primes below 100.</PLAN>

```python
print(sum(n for n in range(2, 100) if is_prime(n)))
```

<STATE_UPDATE>
Approach: brute force
Status: Working
</STATE_UPDATE>"""

SECOND = """
<PLAN>There is no is_prime: write it out.</PLAN>

```python
print(sum(n for n in range(2, 100) if all(n % d for d in range(2, n))))
```

<STATE_UPDATE>
Approach: brute force
Status: Checking
</STATE_UPDATE>"""

THIRD = """
<PLAN>[FINALIZE] The primes below 100 sum up to 1060.</PLAN>

<STATE_UPDATE>
Approach: brute force
Status: Finished
</STATE_UPDATE>"""

sandbox = choose_sandbox()
with ScriptedModel([FIRST, SECOND, THIRD]) as model:
    graph = build_graph(TaggedText(model), [python_tool(sandbox)], limits=TAGGED_LIMITS)
    result = graph.invoke({"messages": [("user", "What is the sum of the primes below 100?")]})
sandbox.close()

messages = result["messages"]
for at, message in enumerate(messages, start=1):
    if message.type == "tool" and message.name == "run_python":
        last_line, now = message.text.splitlines()[-1], current_status(messages[:at])
        print(message.status, "-", last_line, "-", now.status)
print(result["outcome"]["status"], "-", result["outcome"]["summary"])
