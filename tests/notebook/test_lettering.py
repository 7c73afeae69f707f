from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.notebook.lettering import cells, clean, pixels, shorten, xml

anything = st.text(st.characters(codec=None, categories=None), max_size=80)


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\u202e", "\ud800", "\u2028", "\x7f"])
def test_what_cannot_be_seen_is_shown_as_missing(character):
    assert clean(f"a{character}b") == "a�b"


@given(anything)
def test_any_text_becomes_well_formed_xml(text):
    assert ET.fromstring(f'<a b="{xml(text)}">{xml(text)}</a>').text in (clean(text), None)


@given(anything, st.integers(2, 50))
def test_shortened_text_fits(text, limit):
    assert cells(shorten(text, limit)) <= limit


def test_both_ends_of_a_name_are_kept():
    assert shorten("train-on-the-large-set-17", 11) == "train…et-17"


def test_wide_characters_count_twice():
    assert cells("日本") == 4
    assert pixels("日本", 10) > pixels("ab", 10)
