"""Steps of a script for the model of the command line, each in Python."""

LOOK = 'call("read_file", path="config.py")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
WRITE = 'call("write_file", path="new.md", content="# New\\n")'
ASK = 'call("ask_user", question="Which?")'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
DONE = 'call("finish_task", summary="All done.")'
CONFIRM = 'call("finish_task", summary="All done.", requires_user_confirmation=True)'
