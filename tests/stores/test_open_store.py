from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagkit.errors import ConfigError
from dagkit.stores import open_store
from dagkit.stores.memory import MemoryStore
from dagkit.stores.sqlite import SQLiteStore


@pytest.mark.parametrize("url", ["sqlite:{}/s", "{}/s", "SQLITE:{}/s"])
def test_a_path_and_an_sqlite_url_are_the_same_store(tmp_path, url):
    store = open_store(url.format(tmp_path))

    assert isinstance(store, SQLiteStore)
    assert (store.root, store.url) == (tmp_path / "s", f"sqlite:{tmp_path / 's'}")
    assert open_store(store.url).root == store.root
    assert not (tmp_path / "s").exists()


def test_a_path_object_and_the_default_are_directories_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert open_store(Path("x")).root == tmp_path / "x"
    assert open_store().root == tmp_path / ".dagkit"


def test_a_windows_path_is_a_path():
    assert isinstance(open_store("C:\\work\\store"), SQLiteStore)


def test_home_is_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))

    assert open_store("sqlite:~/s").root == tmp_path / "s"


def test_memory_stores_are_separate():
    first, second = open_store("memory:"), open_store("memory:")
    first.put_payload(b"x")

    assert isinstance(first, MemoryStore)
    assert first is not second


@pytest.mark.parametrize("url", ["gopher:x", "sqlite:", "sqlite: "])
def test_an_url_that_means_nothing_is_a_clear_error(url):
    with pytest.raises(ConfigError, match="store '"):
        open_store(url)


def test_a_child_that_reads_and_writes_outputs_imports_little(tmp_path):
    """Every worker process pays for what is imported here."""
    code = (
        "import sys; from dagkit.stores import open_store; store = open_store(sys.argv[1]);"
        "store.get_output(store.put_output('w', 't.json', b'1'));"
        "print(*({'sqlite3', 'pydantic', 'gzip', 'asyncio', 'yaml'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:{tmp_path}"], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
