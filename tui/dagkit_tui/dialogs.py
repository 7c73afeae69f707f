"""Questions in a box over a screen: yes or no, one of some, a few words; and what the keys do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

__all__ = ["Ask", "Choose", "Confirm", "Help"]

_CLOSE: list[BindingType] = [Binding("escape", "dismiss(None)", "Close", show=False)]


class Confirm(ModalScreen[bool]):
    """Says what an action will do, in numbers, and does it after a `y`; `enter` means no."""

    AUTO_FOCUS = "#no"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes", show=False),
        Binding("n,escape", "dismiss(False)", "No", show=False),
    ]

    def __init__(self, question: str, detail: str = "", verb: str = "Yes") -> None:
        super().__init__()
        self.question, self.detail, self.verb = question, detail, verb

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.question), classes="question", markup=False)
            if self.detail:
                yield Static(Text(self.detail), classes="detail", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(Text(f"{self.verb} (y)"), id="yes", variant="error")
                yield Button(Text("No (n)"), id="no")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class Ask(ModalScreen[str | None]):
    """A few words. None if nothing was said."""

    BINDINGS = _CLOSE

    def __init__(self, question: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self.question, self.value, self.placeholder = question, value, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.question), classes="question", markup=False)
            yield Input(self.value, placeholder=self.placeholder)
            yield Static(Text("enter to go on, escape to leave it"), classes="detail")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Choose(ModalScreen[str | None]):
    """One of some: (what it is called, what it means). None if nothing was chosen."""

    BINDINGS = _CLOSE

    def __init__(self, question: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.question, self.choices = question, choices

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.question), classes="question", markup=False)
            yield OptionList(*[Option(Text(f"{name}  {about}"), id=name) for name, about in self.choices])
            yield Static(Text("enter to choose, escape to leave it"), classes="detail")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class Help(ModalScreen[None]):
    """What the keys do, and what the glyphs mean."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss(None)", "Close", show=False)]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog help"):
            yield Static(self.text, markup=False)
