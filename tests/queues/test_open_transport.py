from __future__ import annotations

import pytest

from dagkit.errors import ConfigError
from dagkit.queues import open_transport
from dagkit.queues.memory import MemoryTransport
from dagkit.queues.sqlite import SqliteTransport


@pytest.mark.parametrize("url", ["sqlite:{}/s", "{}/s"])
def test_a_path_and_an_sqlite_url_are_the_same_queues(tmp_path, url):
    transport = open_transport(url.format(tmp_path))

    assert isinstance(transport, SqliteTransport)
    assert (transport.root, transport.url) == (tmp_path / "s", f"sqlite:{tmp_path / 's'}")


def test_memory_queues_are_separate():
    assert isinstance(open_transport("memory:"), MemoryTransport)
    assert open_transport("memory:") is not open_transport("memory:")


@pytest.mark.parametrize("url", ["amqp:x", "sqlite:"])
def test_an_url_that_means_nothing_is_a_clear_error(url):
    with pytest.raises(ConfigError, match="queues '"):
        open_transport(url)
