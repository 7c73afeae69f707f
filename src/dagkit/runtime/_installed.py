"""Which modules another process can import by name, and which have to travel by value.

"Installed" means: a bare interpreter of this environment, started in any folder and without PYTHONPATH, finds it. That
is the standard library, site-packages, and what `.pth` files and editable-install finders add.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import ModuleType

__all__ = ["is_installed", "is_local"]

_ALWAYS = frozenset({"dagkit", "dagkit_tui", "cloudpickle"}) | sys.stdlib_module_names | set(sys.builtin_module_names)
_NEVER = frozenset({"__main__", "__mp_main__"})


def is_installed(name: str) -> bool:
    """True if the module `name` can be imported by a worker of the same environment."""
    top = name.partition(".")[0]
    if top in _NEVER:
        return False
    if top in _ALWAYS:
        return True
    module = sys.modules.get(name) or sys.modules.get(top)
    return module is not None and _found_bare(top, _location(module))


def is_local(name: str) -> bool:
    """True if the module exists here, imported or not, and a worker could not import it."""
    top = name.partition(".")[0]
    if top in _ALWAYS or top in _NEVER:
        return False
    if name in sys.modules:
        return not is_installed(name)
    if top != name and not is_local(top):
        return False  # find_spec of a submodule would import the package
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and not _found_bare(top, spec.origin)


def _location(module: ModuleType) -> str | None:
    """The file, or the folder of a namespace package; None for what was made by hand."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file
    for folder in getattr(module, "__path__", None) or ():
        return f"{folder}/__init__.py"
    return None


@lru_cache(maxsize=4096)
def _found_bare(top: str, location: str | None) -> bool:
    if location is None:
        return False
    if location in ("built-in", "frozen") or location.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return True  # compiled code has no by-value form
    path = Path(location)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return top in _editable_names() or any(str(parent) in _bare_path() for parent in _import_roots(top, path))


def _import_roots(top: str, path: Path) -> list[Path]:
    """Folders that have to be on `sys.path` for `top` to be found at `path`, as written and with links resolved."""
    roots = []
    for form in (path, path.resolve()):
        named = [parent.parent for parent in form.parents if parent.name == top]
        roots += named or [form.parent]
    return roots


@lru_cache(maxsize=1)
def _bare_path() -> frozenset[str]:
    """The folders a bare interpreter searches."""
    own = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    sites = {*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    return frozenset(filter(None, own | sites | {folder for root in sites if root for folder in _pth_folders(root)}))


def _pth_folders(root: str) -> list[str]:
    folders = []
    for file in Path(root).glob("*.pth"):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        entries = (line.strip() for line in lines if line.strip() and not line.startswith(("#", "import ", "import\t")))
        folders += [str((Path(root) / entry).resolve()) for entry in entries]
    return folders


@lru_cache(maxsize=1)
def _editable_names() -> frozenset[str]:
    """Top-level names served by the finders that setuptools writes for editable installs."""
    finders = [module for name, module in list(sys.modules.items()) if name.startswith("__editable___")]
    return frozenset(name for finder in finders for name in getattr(finder, "MAPPING", ()))
