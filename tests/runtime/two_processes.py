"""A notebook session and a worker as two real processes. Not a test: run by the tests beside it.

`run_session(folder, code)` runs `code` as `__main__` of a new Python in `folder`. There, `cell(text)` runs a cell and
`remote(function, *args)` calls a function in a worker: another Python that starts in `/` and finds installed modules
and dagkit only. `keep(function, *args)` leaves the result in the folder, and `load()` reads it, in any later session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

SRC = Path(__file__).resolve().parents[2] / "src"
HERE = Path(__file__).resolve().parent

WORKER = """
import sys, json, importlib.machinery
sys.path.insert(0, sys.argv[1])
__spec__ = importlib.machinery.ModuleSpec("dagkit.runtime.child", None)  # as the worker process of dagkit has it
from pathlib import Path
from dagkit.runtime import payload, values
folder = Path(sys.argv[2])
call = json.loads((folder / "call.json").read_text())
get = lambda digest: (folder / digest.replace(":", "_")).read_bytes()
function = payload.load_function(call["function"], get(call["pickle"]) if call["pickle"] else None)
with payload.main_namespace(function):
    args = [values.decode(arg, resolve=None, get=get) for arg in call["args"]]
encoded = values.dump_output(function(*args))
(folder / "output").write_bytes(encoded.data)
print(encoded.suffix)
"""

PRELUDE = f"""
import sys
sys.path.append({str(HERE)!r})
from two_processes import cell, remote, keep, load
"""


def run_session(folder: Path, code: str, **env: str) -> str:
    """Run `code` as a notebook would; what it printed. Fails with its traceback."""
    script = folder / "notebook_session.py"
    script.write_text(PRELUDE + code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SRC), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cell(text: str) -> None:
    """Run a cell in `__main__`, as IPython does."""
    exec(compile(text, "<cell>", "exec"), sys.modules["__main__"].__dict__)


def remote(function: Any, *args: Any) -> Any:
    """What `function(*args)` returns in a worker."""
    from dagkit.runtime import values

    suffix = _work(function, args)
    return values.load_output(f"blob:w/task.{suffix}", lambda ref: Path("worker/output").read_bytes())


def keep(function: Any, *args: Any) -> None:
    """Leave the result of a call for `load`, in this session or a later one."""
    suffix = _work(function, args)
    Path("worker/output").rename(f"kept.{suffix}")


def load() -> Any:
    from dagkit.runtime import values

    (path,) = Path().glob("kept.*")
    return values.load_output(f"blob:w/{path.name}", lambda ref: path.read_bytes())


def _work(function: Any, args: tuple[Any, ...]) -> str:
    from dagkit.runtime import payload, values

    folder = Path("worker").resolve()
    folder.mkdir(exist_ok=True)

    def put(data: bytes) -> str:
        digest = "sha256:" + sha256(data).hexdigest()
        (folder / digest.replace(":", "_")).write_bytes(data)
        return digest

    reference, data = payload.dump_function(function, "task")
    trees = [values.encode(arg, ref_of=lambda obj: None, put=put, where="task") for arg in args]
    call = {"function": reference, "pickle": put(data) if data is not None else None, "args": trees}
    (folder / "call.json").write_text(json.dumps(call))
    worker = [sys.executable, "-I", "-c", WORKER, str(SRC), str(folder)]
    done = subprocess.run(worker, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.split()[-1]
