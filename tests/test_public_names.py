"""What `import dagkit` offers, and what it costs."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import textwrap

import pytest

import dagkit

#: Imported only by what needs them: they are optional, or slow.
LATE = [
    "pydantic",
    "rich",
    "yaml",
    "azure",
    "textual",
    "ipywidgets",
    "IPython",
    "submitit",
    "click",
    "psutil",
    "pandas",
    "numpy",
]


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_of_names_is_sorted_and_says_each_once():
    assert list(dagkit.__all__) == sorted(set(dagkit.__all__))


@pytest.mark.parametrize("name", dagkit.__all__)
def test_every_name_is_there_and_is_what_its_home_has(name):
    value = getattr(dagkit, name)

    home = sys.modules.get(getattr(value, "__module__", ""), None)
    assert home is None or getattr(home, value.__name__) is value
    assert inspect.getdoc(value)


def test_the_names_for_type_checkers_are_the_names_at_run_time():
    source = inspect.getsource(dagkit).partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    imported = {
        word.strip(" ,()")
        for line in source.splitlines()
        for word in line.partition(" import ")[2].split(",") or [line]
    } | {line.strip(" ,") for line in source.splitlines() if line.startswith("        ")}

    assert set(dagkit.__all__) == {word for word in imported if word.isidentifier()}


def test_no_other_public_name_shows():
    shown = in_a_fresh_process(
        "import dagkit, json; print(json.dumps([n for n in vars(dagkit) if not n.startswith('_')]))"
    )

    assert set(json.loads(shown)) <= {*dagkit.__all__, "annotations", "sys", "ModuleType", "TYPE_CHECKING", "Any"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'taks'"):
        dagkit.taks  # noqa: B018


def test_a_name_of_a_decorator_survives_the_import_of_its_module():
    importlib.import_module("dagkit.task")
    importlib.import_module("dagkit.workflow")

    assert callable(dagkit.task)
    assert callable(dagkit.workflow)


@pytest.mark.parametrize("module", ["dagkit", "dagkit.runtime.context"])
def test_the_import_is_cheap(module):
    loaded = json.loads(in_a_fresh_process(f"import {module}, sys, json; print(json.dumps(list(sys.modules)))"))

    assert [name for name in LATE if name in loaded] == []


def test_the_worker_process_does_without_pydantic():
    loaded = json.loads(
        in_a_fresh_process("import dagkit.runtime.child, sys, json; print(json.dumps(list(sys.modules)))")
    )

    assert not {"pydantic", "rich", "click", "azure"} & set(loaded)


def test_everything_imports_where_there_is_neither_fcntl_nor_unix_signals():
    in_a_fresh_process(
        """
        import importlib, pkgutil, signal, sys

        sys.modules["fcntl"] = None
        for name in ("SIGUSR1", "SIGQUIT"):
            if hasattr(signal, name):
                delattr(signal, name)

        import dagkit

        for name in dagkit.__all__:
            getattr(dagkit, name)
        for found in pkgutil.walk_packages(dagkit.__path__, "dagkit."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
        """
    )
