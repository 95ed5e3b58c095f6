"""`python -m tests.incidents NAME …` plays incidents and writes what came of them as what is expected; read
that before you keep it. Without a name: all."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.incidents.player import Player, as_json, file_of, incidents

for name, incident in incidents().items():
    if not sys.argv[1:] or name in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            address = str(Path(folder) / "threads.sqlite")
            played = Player(name, incident, address, Path(folder)).play()
        file_of(name).write_text(f"{as_json(played)}\n", "utf-8")
