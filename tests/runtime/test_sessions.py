"""Values that one session pickled, in the tasks of another."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

SCRIPT = """
    import sys
    from dagkit import File, task, workflow

    class Box:
        def __init__(self, value): self.value = value

    @task(cache=True)
    def pack(value): return Box(value)

    @task
    def unpack(box): return isinstance(box, Box), box.value, {note!r}

    @task
    def write(path):
        open(path, "w").write("kept")
        return File(path)

    @task
    def read(file): return file.read_bytes().decode()

    print(unpack(pack(7)).run(progress=False).result())
    first = write(sys.argv[1]).run(progress=False)
    print(read(first.result()).run(progress=False).result())
"""


def test_a_cached_object_of_an_earlier_session_is_of_the_class_that_the_task_knows(tmp_path: Path) -> None:
    for note in ("first", "second"):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(SCRIPT.replace("{note!r}", repr(note))))

        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "file.txt")],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
        )

        assert done.stdout.splitlines() == [f"(True, 7, '{note}')", "kept"], done.stderr
