"""Workflows by what people type for them: a file, `module:name` or `file.py:name`, with parameters where it has any."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from dagkit.errors import DagkitError, UsageError

if TYPE_CHECKING:
    from dagkit.workflow import Flow

__all__ = ["UserCodeFailed", "is_source", "load_flow", "read_parameters"]

_FILES = (".yaml", ".yml", ".json")


class UserCodeFailed(Exception):
    """The user's own code raised; `frames` are theirs, without ours. `source` says what it was that was run."""

    def __init__(self, source: str, error: BaseException) -> None:
        self.frames = traceback.format_tb(_own_frames(error.__traceback__))
        super().__init__(f"{source}: {type(error).__name__}: {error}")


def is_source(words: str) -> bool:
    """Whether somebody means a workflow rather than a run."""
    return words == "-" or ":" in words or Path(words).suffix in (*_FILES, ".py") or Path(words).is_file()


def read_parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments from `name=value` words; a value is JSON if it parses as JSON, else text."""
    parameters: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"parameter {pair!r}: expected name=value")
        if name in parameters:
            raise UsageError(f"parameter {name!r} is given twice")
        try:
            parameters[name] = json.loads(text)
        except (ValueError, RecursionError):
            parameters[name] = text
    return parameters


def load_flow(source: str, parameters: Mapping[str, Any] | None = None) -> Flow:
    """The flow that `source` stands for: `-` (YAML on stdin), a YAML or JSON file, `module:name` or `file.py:name`.

    `UsageError` if there is no such thing or a parameter does not fit, `UserCodeFailed` for what their code raises.
    """
    try:
        return _load(source, parameters)
    except DagkitError:
        raise
    except Exception as error:  # the user's code may raise anything; it is theirs to read
        raise UserCodeFailed(source, error) from error


def _load(source: str, parameters: Mapping[str, Any] | None) -> Flow:
    parameters = dict(parameters or {})
    place, name = _split(source)
    if place == "-" or Path(place).suffix in _FILES:
        if parameters:
            raise UsageError(f"{source} is a definition and takes no parameters ({', '.join(parameters)})")
        return _from_file(place)
    return _called(_attribute(_load_module(place), name, place), source, parameters)


def _split(source: str) -> tuple[str, str]:
    place, colon, name = source.rpartition(":")
    if colon and name.isidentifier():
        return place, name
    return source, ""


def _from_file(path: str) -> Flow:
    from dagkit.workflow import Flow

    if path == "-":
        from dagkit.model.spec import WorkflowSpec

        spec = WorkflowSpec.from_yaml(sys.stdin.read(), source="<stdin>")
        flow = Flow(spec.name)
        flow._read = (spec, {})
        return flow
    try:
        return Flow.from_file(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def _load_module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix == ".py" or path.is_file():
        return _load_script(path)
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"{place!r} is neither a workflow file (.yaml, .json), a script (.py) nor a module")
    # As `python -m` does: modules beside where one stands are found.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"no module {place!r} here or installed") from None
        raise


def _load_script(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    from dagkit.workflow import Flow, Workflow

    own = {key: value for key, value in vars(module).items() if isinstance(value, (Flow, Workflow))}
    if name:
        if hasattr(module, name):
            return getattr(module, name)
        known = f"It has {', '.join(own)}." if own else "It has no workflow."
        raise UsageError(f"{place} has no {name!r}. {known}")
    if len(own) == 1:
        return next(iter(own.values()))
    if not own:
        raise UsageError(f"{place} has no workflow: neither a @workflow function nor a flow")
    raise UsageError(f"{place} has several workflows; say which: {', '.join(f'{place}:{key}' for key in own)}")


def _called(found: Any, source: str, parameters: dict[str, Any]) -> Flow:
    from dagkit.workflow import Flow, Workflow

    if isinstance(found, Flow):
        if parameters:
            raise UsageError(f"{source} is a flow that is traced already and takes no parameters")
        return found
    if not isinstance(found, Workflow) and not callable(found):
        raise UsageError(f"{source} is of type {type(found).__name__}, not a workflow")
    _check_parameters(found, source, parameters)
    made = found(**parameters)
    if not isinstance(made, Flow):
        raise UsageError(f"{source} made a {type(made).__name__}, not a flow; is it a @workflow function?")
    return made


def _check_parameters(function: Any, source: str, parameters: Mapping[str, Any]) -> None:
    import inspect

    signature = inspect.signature(getattr(function, "fn", function))
    try:
        signature.bind(**parameters)
    except TypeError as error:
        raise UsageError(f"{source}{signature}: {error}. Give parameters as -p name=value.") from None


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the user's code."""
    ours = (str(Path(__file__).parents[1]), "<frozen importlib")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((*ours, importlib.__file__)):
        trace = trace.tb_next
    return trace
