"""Controls of the labelling page: item, meaning of clicks, size, mass, report."""

import html
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fleet_tools.assets.model_description import MATERIALS
from fleet_tools.studio.importing.settings import UNITS, ScaleSettings
from fleet_tools.studio.labelling.picking import Snap, size
from fleet_tools.studio.labelling.scene_view import colours
from fleet_tools.studio.labelling.session import HAND_ITEM, LabellingSession

if TYPE_CHECKING:
    import viser

SNAPS: tuple[Snap, ...] = ("surface", "vertex", "edge", "face centre")
AXES = ("z", "y", "x", "-z", "-y", "-x")
AUTO, PLAIN, GIVEN = "auto", "plain", "by the length"

Act = Callable[[Callable[[], None]], None]
"""Does something to the session, redraws the page, and reports errors there."""


_CODE = re.compile(r"`([^`<>{}&\n]+)`")
"""Code in the texts of messages; it names nothing that could be markup."""


def literal(text: object) -> str:
    """Returns Markdown that shows a text as it is; viser's page would run scripts in a name.

    Only its `code` is shown as code.
    """
    parts = _CODE.split(str(text))
    parts[::2] = [re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"`{code}`" for code in parts[1::2]]
    return "".join(parts)


def literal_html(text: object) -> str:
    """Returns HTML that shows a text as it is, apart from its `code`, see `literal`."""
    parts = [html.escape(part) for part in _CODE.split(str(text))]
    parts[1::2] = [f"<code>{code}</code>" for code in parts[1::2]]
    return "".join(parts)


def plain(text: str) -> str:
    """Returns a text for where no code can be shown as such."""
    return text.replace("`", "'")


class Panel:
    """The controls of a page.

    Args:
        gui: Where they go.
        session: What they show and change.
        act: Does what is asked for.
    """

    def __init__(self, gui: "viser.GuiApi", session: LabellingSession, act: Act) -> None:
        self._gui, self._session, self._act = gui, session, act
        self._names = [name for name in session.items if name != HAND_ITEM]
        identity = session.subject.identity
        gui.add_markdown(
            f"**{literal(identity.family)}** {literal(identity.name)}, from "
            f"{literal(identity.source)}"
        )
        self._list = gui.add_html("")
        self._choices = gui.add_button_group("Label", list(session.items))
        self._choices.on_click(lambda _: self._act(lambda: session.select(self._choices.value)))
        self._size = gui.add_markdown("")
        self._task = gui.add_markdown("")
        self._snap = gui.add_dropdown("A click means", SNAPS, initial_value="surface")
        self._when(self._snap, lambda value: setattr(session, "snap", value))
        self._between = gui.add_checkbox("Middle of two clicks", False)
        self._when(self._between, lambda value: setattr(session, "between", value))
        self._derive = self._button("Derive", session.derive)
        self._turn = self._button("Turn the hand by 90°", session.turn_hand)
        self._undo = self._button("Undo", session.undo, color="gray")
        self._add_size()
        self._status = gui.add_markdown("")
        self.save = gui.add_button("Save and check", color="green")
        self.report = gui.add_markdown("")
        self.details = gui.add_html("")

    def draw(self) -> None:
        """Shows the present state of the session."""
        session = self._session
        self._list.content = self._items_html()
        item, meaning = session.item, session.items[session.item]
        word = "second click" if session.first is not None else "next click"
        self._task.content = f"The {word} labels **{literal(item)}**" + (
            f": {literal(meaning.text)}." if meaning.text else "."
        )
        is_hand = item == HAND_ITEM
        self._snap.visible = self._between.visible = not is_hand
        self._turn.visible = is_hand and session.hand() is not None
        self._derive.visible = meaning.derived is not None
        if meaning.derived is not None:
            self._derive.label = plain(f"Put {item} {meaning.derived.words}")
            self._derive.disabled = not all(map(session.is_labelled, meaning.derived.of))
        self._undo.disabled = not session.can_undo
        sides = " x ".join(
            f"{1000 * side:.1f}" for side in np.ptp(session.surface.vertices, axis=0)
        )
        self._size.content = f"{sides} mm in x, y and z"
        missing = session.missing
        self._status.content = (
            f"Still missing: {literal(', '.join(missing))}."
            if missing
            else "Everything is labelled."
        )
        self.save.disabled = bool(missing)
        self._draw_size()

    def _items_html(self) -> str:
        rows = []
        colour = colours(self._names)
        points = self._session.points()
        for name, meaning in self._session.items.items():
            red, green, blue = colour.get(name, (72, 110, 170))
            done = self._session.is_labelled(name)
            current = name == self._session.item
            dot = f"background:rgb({red},{green},{blue})" if done else "border:2px solid #aaa"
            where = ""
            if name in points:
                where = ", ".join(f"{1000 * value:.1f}" for value in points[name]) + " mm"
            rows.append(
                f'<div style="display:flex;gap:8px;padding:4px 6px;border-radius:6px;'
                f'{"background:#e3eefc;" if current else ""}">'
                f'<span style="flex:none;width:12px;height:12px;margin-top:4px;border-radius:50%;'
                f'box-sizing:border-box;{dot}"></span>'
                f"<span><b>{html.escape(name)}</b> {literal_html(meaning.text)}"
                f'<span style="color:#777"> {where}</span></span></div>'
            )
        return (
            '<div style="font-size:13px;line-height:1.4;padding:0 10px">' + "".join(rows) + "</div>"
        )

    def _add_size(self) -> None:
        gui, session = self._gui, self._session
        self._length = self._unit = self._mass = self._material = self._up = None
        if not session.subject.is_mesh:
            return
        with gui.add_folder("Size and mass"):
            self._unit = gui.add_dropdown("Unit of the file", (AUTO, *UNITS, GIVEN))
            self._when(self._unit, self._set_unit)
            self._length = gui.add_number("Longest side, mm", 0.0, min=0.0, step=0.1)
            self._when(self._length, self._set_length)
            self._mass = gui.add_number("Mass, kg", 0.0, min=0.0, step=0.01)
            self._when(self._mass, lambda value: session.set(mass=value or None))
            self._material = gui.add_dropdown("Material", (PLAIN, *MATERIALS))
            self._when(
                self._material,
                lambda value: session.set(material=None if value == PLAIN else value),
            )
            if session.subject.identity.kind == "object":
                self._up = gui.add_dropdown("Axis that is up", AXES)
                self._when(self._up, lambda value: session.set(up=value))

    def _draw_size(self) -> None:
        if self._length is None or self._unit is None:
            return
        assert self._mass is not None and self._material is not None
        labels = self._session.labels
        self._length.value = round(1000 * size(self._session.surface), 2)
        units = {factor: unit for unit, factor in UNITS.items()}
        if labels.scale.length is not None:
            self._unit.value = GIVEN
        elif labels.scale.scale is None:
            self._unit.value = AUTO
        else:
            self._unit.value = units.get(labels.scale.scale, GIVEN)
        self._mass.value = labels.mass or 0.0
        self._material.value = labels.material or PLAIN
        if self._up is not None:
            self._up.value = labels.up

    def _set_unit(self, unit: str) -> None:
        if unit != GIVEN:
            self._session.set(scale=ScaleSettings(scale=UNITS.get(unit)))

    def _set_length(self, length_mm: float) -> None:
        if length_mm > 0:
            self._session.set(scale=ScaleSettings(length=length_mm / 1000))

    def _button(
        self, label: str, do: Callable[[], None], color: Literal["blue", "gray"] = "blue"
    ) -> "viser.GuiButtonHandle":
        button = self._gui.add_button(label, color=color)
        button.on_click(lambda _: self._act(do))
        return button

    def _when(self, handle: Any, do: Callable[[Any], None]) -> None:
        """Calls a function with the value of an input that a person has changed."""

        def changed(event: Any) -> None:
            if event.client is not None:  # the page itself sets values, too
                self._act(lambda: do(handle.value))

        handle.on_update(changed)
