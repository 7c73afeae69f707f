from __future__ import annotations

import enum
import os
import threading
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dagkit.runtime.wire import Frames, pack, write_all

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(objects=st.lists(plain, max_size=5), cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_frames_come_out_as_they_went_in_however_they_are_cut(objects: list[Any], cuts: list[int]) -> None:
    data = b"".join(map(pack, objects))
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    frames = Frames()

    found = [one for a, b in pairwise(edges) for one in frames.feed(data[a:b])]

    assert found == objects


class Color(str, enum.Enum):
    RED = "red"


def test_what_marshal_refuses_travels_too() -> None:
    assert Frames().feed(pack(("job", {"color": Color.RED}))) == [("job", {"color": "red"})]


def test_text_that_is_no_valid_unicode_travels() -> None:
    assert Frames().feed(pack(("\ud800",))) == [("\ud800",)]


def test_more_than_a_pipe_holds_is_written_whole() -> None:
    read, write = os.pipe()
    data = os.urandom(500_000)
    writer = threading.Thread(target=write_all, args=(write, data))
    writer.start()

    found = b""
    while len(found) < len(data):
        found += os.read(read, 65_536)

    writer.join()
    os.close(read)
    os.close(write)
    assert found == data
