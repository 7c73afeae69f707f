"""Functions and classes reach a worker that knows nothing of the notebook, and results find their way home."""

from __future__ import annotations

import functools
import json
import re
import socket
import threading
import warnings
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from dagkit.errors import CorruptState, NewerFormat, NotPicklable, PayloadMismatch
from dagkit.runtime import payload
from runtime.two_processes import run_session

# --- what travels: one session per kind, the worker is another process with another folder and a bare path

TRAVELS = {
    "a function of a cell": """
cell("def add(a, b=2): return a + b")
assert remote(add, 1) == 3
""",
    "a global, also after it was changed": """
cell("K = 1\\ndef times(a): return a * K")
K = 5
assert remote(times, 2) == 10
""",
    "a closure and a lambda": """
def outer(k):
    def inner(a): return a + k
    return inner
assert remote(outer(10), 1) == 11
assert remote(lambda a: [a * f(1) for f in [lambda x: x + 1]], 2) == [4]
""",
    "a partial": """
import functools
def power(a, b): return a ** b
assert remote(functools.partial(power, b=3), 2) == 8
""",
    "a wrapper made with functools.wraps": """
import functools
def doubled(fn):
    @functools.wraps(fn)
    def wrapper(*args): return 2 * fn(*args)
    return wrapper
@doubled
def one_more(a): return a + 1
assert remote(one_more, 1) == 4
""",
    "a recursive function and two that call each other": """
def fact(n): return 1 if n < 2 else n * fact(n - 1)
def even(n): return True if n == 0 else odd(n - 1)
def odd(n): return False if n == 0 else even(n - 1)
assert remote(fact, 5) == 120
assert remote(even, 10) is True
""",
    "a bound method and a callable object": """
class Model:
    def __init__(self, k): self.k = k
    def predict(self, x): return self.k * x
    def __call__(self, x): return self.predict(x) + 1
assert remote(Model(3).predict, 2) == 6
assert remote(Model(3), 2) == 7
""",
    "an async function and a generator helper": """
import asyncio
async def later(a): return a
def run(a): return asyncio.run(later(a)) + sum(count(3))
def count(n): yield from range(n)
assert remote(run, 1) == 4
""",
    "a function of an installed module, by reference": """
import json
from dagkit.runtime.payload import dump_function
assert dump_function(json.dumps) == ("json:dumps", None)
assert remote(json.dumps, [1]) == "[1]"
""",
    "a module beside the notebook, with what it imports": """
from pathlib import Path
Path("steps.py").write_text("import mathematics\\nimport threading\\nlock = threading.Lock()\\n"
    "def train(x): return mathematics.square(x) + OFFSET\\nOFFSET = 1\\ndef locked():\\n    with lock: pass\\n")
Path("mathematics.py").write_text("def square(x): return x * x\\n")
sys.path.insert(0, "")
import steps
assert remote(steps.train, 3) == 10
assert remote(lambda x: steps.train(x), 3) == 10
""",
    "a package beside the notebook, with relative imports": """
from pathlib import Path
Path("pipe/parts").mkdir(parents=True)
Path("pipe/__init__.py").write_text("from .parts import deep\\n")
Path("pipe/parts/__init__.py").write_text("")
Path("pipe/parts/deep.py").write_text("from .. import other\\ndef go(x): return other.f(x)\\n")
Path("pipe/other.py").write_text("def f(x): return x + 100\\n")
sys.path.insert(0, "")
import pipe, pipe.parts.deep
def task(x): return pipe.parts.deep.go(x) + pipe.deep.go(x)
assert remote(task, 1) == 202
""",
    "a local module that the function imports when it runs": """
from pathlib import Path
Path("late.py").write_text("from later import g\\ndef f(x): return g(x)\\nclass C: pass\\n")
Path("later.py").write_text("def g(x): return x + 7\\n")
sys.path.insert(0, "")
def task(x):
    from late import f
    import json
    return f(x)
assert remote(task, 1) == 8
""",
    "a submodule of an installed package used by attribute": """
import concurrent.futures
def task(x):
    with concurrent.futures.ThreadPoolExecutor(1) as pool: return pool.submit(abs, x).result()
assert remote(task, -1) == 1
""",
    "a class of a cell as argument and result": """
cell('''
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    def twice(self): return Point(2 * self.x)
def move(p):
    assert isinstance(p, Point)
    return p.twice()
''')
result = remote(move, Point(1))
assert isinstance(result, Point) and result == Point(2)
""",
    "a class whose cell was run again before the result came back": """
text = "class Box:\\n    def __init__(self, v): self.v = v\\ndef make(v): return Box(v)"
cell(text)
keep(make, 1)
old = Box
cell(text)
assert Box is not old
assert isinstance(load(), Box)
""",
    "enums stay identical": """
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = "b"
class Level(enum.IntEnum):
    LOW = 1
class Flags(enum.Flag):
    A = 1
    B = 2
def pick(c):
    assert c is Color.RED
    return [Color.BLUE, Level.LOW, Flags.A | Flags.B, Color]
blue, low, both, cls = remote(pick, Color.RED)
assert blue is Color.BLUE and low is Level.LOW and both == Flags.A | Flags.B and cls is Color
""",
    "inner classes, generics, named tuples, slots and class attributes": """
import collections, typing, dataclasses
class Outer:
    class Inner:
        K = 4
    limit = 2
Row = collections.namedtuple("Row", "a b")
class Typed(typing.NamedTuple):
    a: int
T = typing.TypeVar("T")
@dataclasses.dataclass(frozen=True)
class Slotted(typing.Generic[T]):
    value: T
def make(o, row): return [Outer.Inner(), row._replace(a=o.limit), Typed(1), Slotted(3)]
inner, row, typed, slotted = remote(make, Outer(), Row(1, 2))
assert isinstance(inner, Outer.Inner) and row == Row(2, 2) and type(row) is Row and typed == Typed(1)
assert slotted == Slotted(3)
""",
    "an exception class of a cell": """
class Odd(ValueError):
    def __init__(self, n): super().__init__(n); self.n = n
def give(n): return Odd(n)
assert isinstance(remote(give, 3), Odd)
""",
    "a class of a local module": """
from pathlib import Path
Path("shapes.py").write_text("class Shape:\\n    def __init__(self, n): self.n = n\\n"
    "    def grow(self): return Shape(self.n + 1)\\n")
sys.path.insert(0, "")
from shapes import Shape
def grow(s): return s.grow()
result = remote(grow, Shape(1))
assert isinstance(result, Shape) and result.n == 2
""",
    "abstract classes, metaclasses, cached properties, super and slots": """
import abc, dataclasses, functools
class Base(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
    @classmethod
    def make(cls): return cls()
class Child(Base):
    def __init__(self): super().__init__()
    def go(self): return type(self).__name__
    @functools.cached_property
    def cached(self): return 5
class Meta(type):
    def __new__(meta, name, bases, body): return super().__new__(meta, name, bases, {**body, "tag": name})
class Tagged(metaclass=Meta): pass
@dataclasses.dataclass(slots=True, frozen=True)
class Slotted: x: int
def task(child, tagged, slotted):
    assert [child.go(), isinstance(child, Base), Child.make().cached, tagged.tag] == ["Child", True, 5, "Tagged"]
    return [child, tagged, dataclasses.replace(slotted, x=2)]
child, tagged, slotted = remote(task, Child(), Tagged(), Slotted(1))
assert child.cached == 5 and type(child) is Child and type(tagged) is Tagged and slotted == Slotted(2)
""",
    "an object that refers to itself": """
class Knot:
    def __init__(self): self.tied = self
knot = remote(lambda given: given if given.tied is given else None, Knot())
assert knot.tied is knot and isinstance(knot, Knot)
""",
    "methods and functions of builtins and of compiled modules": """
import numpy as np
assert [remote(np.sin, 0.0), remote(str.upper, "a"), remote("-".join, ["x", "y"])] == [0, "A", "x-y"]
assert remote(int, "3") == 3
""",
    "a module of a kind of its own, as `dagkit` is": """
import dagkit
def run(): return dagkit.File.__name__
assert remote(run) == "File"
""",
    "two classes from one factory": """
def make(k):
    class Made: pass
    return Made
A, B = make(1), make(1)
def back(*objects): return list(objects)
a, b = remote(back, A(), B())
assert type(a) is A and type(b) is B
""",
    "classes of one name and content in two modules": """
from pathlib import Path
for name in ("left", "right"):
    Path(name + ".py").write_text("class Side:\\n    pass\\ndef of(x): return isinstance(x, Side)")
sys.path.insert(0, "")
import left, right
def check(a, b): return [left.of(a), left.of(b), right.of(a), right.of(b), type(a).__module__]
assert remote(check, left.Side(), right.Side()) == [True, False, False, True, "left"]
""",
    "a callable object and a partial given objects of their classes": """
import functools
class Box: pass
class Check:
    def __call__(self, b): return isinstance(b, Box)
def check(kind, b): return isinstance(b, Box)
assert remote(Check(), Box()) and remote(functools.partial(check, 1), Box())
""",
    "a function whose own import is not available here": """
def task(x):
    if x: import no_such_package_anywhere.part
    import concurrent.futures.process, xml.sax.handler
    return xml.sax.handler.version
assert isinstance(remote(task, 0), str)
assert "xml" not in sys.modules
""",
    "a local module that cannot be imported here is left to the worker": """
from pathlib import Path
Path("gpu_only.py").write_text("import no_such_package_anywhere")
sys.path.insert(0, "")
def task(x):
    if x: import gpu_only
    return 1
assert remote(task, 0) == 1
try: remote(task, 1)
except RuntimeError as error: assert "No module named 'gpu_only'" in str(error)
else: raise AssertionError
""",
    "a task object in the place of its function": """
import types, dagkit
module = types.ModuleType("dagkit.declared")
exec("class Task:\\n    def __init__(self, fn): self.fn = fn", module.__dict__)
sys.modules["dagkit.declared"] = module
def plain(x): return x + 1
assert remote(module.Task(plain), 1) == 2
""",
}


@pytest.mark.parametrize("code", TRAVELS.values(), ids=TRAVELS.keys())
def test_it_travels(code: str, tmp_path: Path) -> None:
    run_session(tmp_path, code)


def test_a_result_of_an_earlier_session_is_an_instance_of_the_class_that_this_session_has(tmp_path: Path) -> None:
    define = "class Box:\n    def __init__(self, v): self.v = v\n\ndef make(v): return Box(v)\n"
    run_session(tmp_path, define + "keep(make, 3)")

    run_session(tmp_path, define + "assert isinstance(load(), Box) and load().v == 3")


def test_a_result_of_an_earlier_session_loads_where_the_class_is_unknown(tmp_path: Path) -> None:
    run_session(tmp_path, "class Box:\n    v = 3\n\ndef make(): return Box()\nkeep(make)")

    run_session(tmp_path, "assert load().v == 3 and type(load()).__name__ == 'Box'")


def test_a_value_of_an_earlier_session_is_an_instance_inside_the_function_too(tmp_path: Path) -> None:
    define = "class Box:\n    v = 3\n\ndef make(): return Box()\ndef check(b): return isinstance(b, Box)\n"
    run_session(tmp_path, define + "keep(make)")

    run_session(tmp_path, define + "assert remote(check, load()) is True")


def test_the_same_function_is_the_same_payload_in_every_session(tmp_path: Path) -> None:
    code = """
import hashlib
from dagkit.runtime.payload import dump_function
class Box:
    def __init__(self, v): self.v = v
def task(a, b=1): return Box(a + b)
print(hashlib.sha256(dump_function(task)[1]).hexdigest())
"""
    digests = {run_session(tmp_path, code, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")}

    assert len(digests) == 1


def test_a_wrapped_function_declared_in_an_installed_module_resolves_to_its_function(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "dagkit_like.py").write_text("")
    (site / "pipeline_steps.py").write_text(
        "import types, sys\n"
        "declared = types.ModuleType('dagkit.declared')\n"
        "exec('class Task:\\n    def __init__(self, fn): self.fn = fn', declared.__dict__)\n"
        "@declared.Task\ndef train(x): return x * 2\n"
    )
    code = f"""
sys.path.insert(0, {str(site)!r})
import pipeline_steps
from dagkit.runtime.payload import dump_function, load_function
assert dump_function(pipeline_steps.train) == ("pipeline_steps:train", None)
assert dump_function(pipeline_steps.train.fn) == ("pipeline_steps:train", None)
assert load_function("pipeline_steps:train")(4) == 8
"""
    run_session(tmp_path, code)


def test_pickling_leaves_the_registry_of_cloudpickle_as_it_was(tmp_path: Path) -> None:
    code = """
from pathlib import Path
Path("steps.py").write_text("def f(): return 1")
sys.path.insert(0, "")
import steps, cloudpickle
before = cloudpickle.list_registry_pickle_by_value()
assert remote(steps.f) == 1
assert cloudpickle.list_registry_pickle_by_value() == before
"""
    run_session(tmp_path, code)


# --- what cannot travel is named


class Client:
    def __init__(self) -> None:
        self.session = {"pool": [threading.RLock()]}


LOCK = threading.Lock()


def uses_global() -> None:
    with LOCK:
        pass


def uses_helper() -> None:
    uses_global()


def capturing(value: object) -> object:
    captured = value
    return lambda: captured


def test_a_captured_lock_is_named_by_its_variable() -> None:
    with pytest.raises(NotPicklable, match=r"train: closure variable 'captured' cannot travel .*lock"):
        payload.dump_function(capturing(threading.Lock()), "train")


def test_a_global_lock_is_named_also_when_a_helper_uses_it() -> None:
    with pytest.raises(NotPicklable, match=r"global 'LOCK' cannot travel"):
        payload.dump_function(uses_global, "train")
    with pytest.raises(NotPicklable, match=r"global 'LOCK' of uses_global cannot travel"):
        payload.dump_function(uses_helper, "train")


def test_a_default_value_is_named() -> None:
    def train(x: int, *, client: object = threading.Lock(), rate: object = 1) -> None: ...

    with pytest.raises(NotPicklable, match=r"default of 'client'"):
        payload.dump_function(train)


def test_a_client_that_holds_a_lock_deep_inside_is_named_with_the_way_there() -> None:
    pattern = r"closure variable 'captured' \(captured\.session\['pool'\]\[0\]\) cannot travel .*RLock"

    with pytest.raises(NotPicklable, match=pattern):
        payload.dump_function(capturing(Client()), "train")


def test_sockets_generators_and_open_files_are_refused(tmp_path: Path) -> None:
    with socket.socket() as connection, open(tmp_path / "f", "w+") as file:
        for value in (connection, (x for x in ()), file):
            with pytest.raises(NotPicklable, match="'captured'"):
                payload.dump_function(capturing(value), "train")


def test_a_partial_argument_and_the_object_of_a_bound_method_are_named() -> None:
    class Model:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def fit(self) -> None: ...

    with pytest.raises(NotPicklable, match="partial argument 'client'"):
        payload.dump_function(functools.partial(capturing, client=threading.Lock()))
    with pytest.raises(NotPicklable, match=r"\.__self__\.lock"):
        payload.dump_function(Model().fit)


def test_an_object_that_raises_while_pickled_is_named() -> None:
    class Sealed:
        def __reduce__(self) -> str:
            raise RuntimeError("ask somebody else")

    with pytest.raises(NotPicklable, match=r"\(captured\['a'\]\) .*ask somebody else"):
        payload.dump_function(capturing({"a": Sealed()}))


def test_deep_nesting_is_a_clear_error() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(NotPicklable, match="nested too deeply"):
        payload.dumps(value, "train: argument 'x'")


def test_a_lock_of_a_local_module_is_named_where_it_is_used(tmp_path: Path) -> None:
    code = """
from pathlib import Path
Path("steps.py").write_text("import threading\\nlock = threading.Lock()\\nunused = threading.Lock()")
sys.path.insert(0, "")
import steps
from dagkit.runtime.payload import dump_function
def task():
    with steps.lock: return 1
try: dump_function(task)
except Exception as error: print(error)
"""
    assert "task: 'steps.lock' cannot travel" in run_session(tmp_path, code)


# --- what is big is named


def test_a_big_captured_array_is_warned_about_once_with_name_and_size() -> None:
    function = capturing(np.zeros(5_000_000))

    with pytest.warns(payload.LargeCapture, match=r"train: closure variable 'captured' is 40\.0 MB"):
        payload.dump_function(function, "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload.dump_function(function, "train")


def test_a_big_array_that_a_helper_captured_is_named() -> None:
    helper = capturing(np.zeros(2_000_000))

    with pytest.warns(payload.LargeCapture, match=r"'captured' is 16\.0 MB"):
        payload.dump_function(lambda: helper(), "train")


def test_a_big_array_of_a_local_module_is_named(tmp_path: Path) -> None:
    code = """
import warnings
from pathlib import Path
Path("data.py").write_text("import numpy\\ntable = numpy.zeros(2_000_000)")
sys.path.insert(0, "")
import data
from dagkit.runtime.payload import dump_function
with warnings.catch_warnings(record=True) as caught: dump_function(lambda: data.table.sum(), "train")
print(*[warning.message for warning in caught])
"""
    assert "train: 'data.table' is 16.0 MB" in run_session(tmp_path, code)


def test_a_small_capture_is_nothing_to_warn_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload.dump_function(capturing(np.zeros(1000)), "train")


# --- the header


def forged(data: bytes, **fields: str) -> bytes:
    header, newline, body = data.partition(b"\n")
    for name, value in fields.items():
        header = re.sub(rb"%s=\S+" % name.encode(), f"{name}={value}".encode(), header)
    return header + newline + body


def test_code_of_another_python_is_refused_with_both_versions() -> None:
    _, data = payload.dump_function(lambda: 1)

    with pytest.raises(PayloadMismatch, match=r"Python 3\.7 and cloudpickle .* this worker runs Python 3\.\d+"):
        payload.load_function(data=forged(data or b"", python="3.7"))


def test_code_of_another_cloudpickle_major_version_is_refused() -> None:
    _, data = payload.dump_function(lambda: 1)

    with pytest.raises(PayloadMismatch, match=rf"cloudpickle 1\.9\.0.*cloudpickle {cloudpickle.__version__}"):
        payload.load_function(data=forged(data or b"", cloudpickle="1.9.0"))


def test_plain_data_of_another_python_loads() -> None:
    data = forged(payload.dumps({"a": (1, 2)}, "x"), python="3.7", cloudpickle="1.9.0", dagkit="0.0.1")

    assert payload.loads(data) == {"a": (1, 2)}


def test_a_later_format_and_damaged_headers_are_told_apart() -> None:
    data = payload.dumps([1], "x")

    with pytest.raises(NewerFormat, match="format 2"):
        payload.loads(data.replace(b"payload 1", b"payload 2", 1))
    for damaged in (b"", b"dagkit-payload 1", b"\x80\x05N.", b"dagkit-payload\n", data[10:]):
        with pytest.raises(CorruptState, match="header"):
            payload.loads(damaged)


def test_a_reference_that_names_no_function_is_refused() -> None:
    assert payload.load_function("json:dumps") is json.dumps
    with pytest.raises(CorruptState, match="not a function"):
        payload.load_function("sys:path")
    with pytest.raises(ImportError):
        payload.load_function("no_such_module_at_all:f")
