"""What a worker can import is decided as a bare interpreter of the environment would find it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from dagkit.runtime._installed import is_installed, is_local

SRC = Path(__file__).resolve().parents[2] / "src"

EDITABLE_FINDER = """
import importlib.util, sys
MAPPING = {{"mapped": {mapped!r}}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, MAPPING[name]) if name in MAPPING else None
def install():
    sys.meta_path.append(Finder)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a new environment with two editable installs: `pathed` by a .pth line, `mapped` by a finder."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (tmp_path / "project/src/pathed").mkdir(parents=True)
    (tmp_path / "project/src/pathed/__init__.py").write_text("def f(): return 1\n")
    (tmp_path / "project/beside.py").write_text("def f(): return 1\n")
    (tmp_path / "mapped.py").write_text("def f(): return 1\n")
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (site / "plain.py").write_text("def f(): return 1\n")
    paths = [str(SRC), sysconfig.get_path("purelib"), str(tmp_path / "project/src")]
    (site / "_paths.pth").write_text("# comment\n" + "\n".join(paths) + "\n")
    (site / "__editable___mapped_finder.py").write_text(EDITABLE_FINDER.format(mapped=str(tmp_path / "mapped.py")))
    (site / "_mapped.pth").write_text("import __editable___mapped_finder; __editable___mapped_finder.install()\n")
    return tmp_path / "env/bin/python"


def test_editable_installs_are_installed_and_a_module_beside_them_is_not(environment: Path, tmp_path: Path) -> None:
    code = (
        "import plain, pathed, mapped, beside\n"
        "from dagkit.runtime._installed import is_installed\n"
        "print([is_installed(name) for name in ('plain', 'pathed', 'mapped', 'beside', 'dagkit', 'numpy')])\n"
    )
    done = subprocess.run(
        [str(environment), "-c", code],
        cwd=tmp_path / "project",
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.strip() == "[True, True, True, False, True, False]", done.stderr


def test_the_standard_library_and_site_packages_are_installed() -> None:
    import numpy.linalg  # noqa: F401

    for name in ("json", "os.path", "sys", "builtins", "numpy", "numpy.linalg", "dagkit.errors", "cloudpickle"):
        assert is_installed(name), name


def test_main_and_this_test_are_not_installed() -> None:
    assert not is_installed("__main__")
    assert not is_installed(__name__)
    assert not is_installed("no_such_module")


def test_a_module_is_local_if_it_exists_here_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_notebook.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    assert is_local("beside_the_notebook")
    assert not is_local("json")
    assert not is_local("no_such_module")
    assert not is_local("no_such_package.module")
