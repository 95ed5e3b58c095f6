"""A scripted model that fixes a bug.

`signoff run "Run the tests and fix the bug" --model scripted:script.py --workspace project`
"""

from signoff.models import ScriptedModel, call

TEST = call("run_shell", command="python -m pytest -q")

model = ScriptedModel(
    [
        call("think", thought="First I look at the tests and at what they say.", status="Looking"),
        TEST,
        [call("read_file", path="prices.py"), call("read_file", path="test_prices.py")],
        ["The discount is added instead of taken off.",
         call("edit_file", path="prices.py", old="(100 + discount)", new="(100 - discount)")],
        TEST,
        call(
            "finish_task",
            summary="Fixed total() in prices.py: it added the discount instead of taking it off. "
            "Both tests pass now (python -m pytest -q).",
        ),
    ]
)  # fmt: skip
