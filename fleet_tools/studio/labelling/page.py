"""The labelling page in the browser: connects a session with drawing and clicks."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.assets.solids import Solid
from fleet_tools.errors import FleetToolsError
from fleet_tools.studio.checking.program import report_text
from fleet_tools.studio.labelling.expert_trial import TrialProcess
from fleet_tools.studio.labelling.panel import Panel, literal, literal_html, plain
from fleet_tools.studio.labelling.picking import size
from fleet_tools.studio.labelling.scene_view import FIELD_OF_VIEW, WorkView, view_of
from fleet_tools.studio.labelling.session import HAND_ITEM, LabellingSession
from fleet_tools.studio.labelling.subjects import find_example
from fleet_tools.studio.page_gate import open_viser, stop_viser
from fleet_tools.studio.viser_links import pose_of

if TYPE_CHECKING:
    import viser

_REPORT_STYLE = "white-space:pre-wrap;font-size:12px;padding:0 10px"

HANDLES = 0.22
"""Length of the arrows with which labels are dragged, relative to the longest side."""


class LabelPage:
    """A page on which a subject is labelled.

    Args:
        session: A person's work.
        port: Port to listen on; 0 takes a free one.
        scenes: Number of scenes in which the expert tries the model.
        seed: Seed of the first scene.
        task: Name or path of the task in which it does; None for the package's.

    Attributes:
        session: A person's work.
        server: Viser's server.
        url: Address of the page. Who has it can write the model.

    Raises:
        ConfigError: It cannot listen there.
        MissingLibraryError: Viser is absent.
    """

    def __init__(
        self,
        session: LabellingSession,
        port: int = 0,
        scenes: int = 4,
        seed: int = 0,
        task: str | None = None,
    ) -> None:
        self.session, self._scenes, self._seed, self._task = session, scenes, seed, task
        self._lock = threading.RLock()
        self._trial: TrialProcess | None = None
        self._drawn: Solid | None = None
        purpose = "show the page on which a mesh is labelled"
        gate, self.server = open_viser(port, purpose, "Fleet-Tools label")
        self.url = gate.url
        self.server.gui.configure_theme(
            control_width="large", show_logo=False, show_share_button=False
        )
        self.server.gui.main_panel.dock_right()
        self.server.scene.configure_default_lights(cast_shadow=False)  # cheaper, and clearer
        self.server.gui.set_panel_label("Label a model")
        identity = session.subject.identity
        names = [name for name in session.items if name != HAND_ITEM]
        self._example = find_example(identity, task)
        self._view = WorkView(self.server.scene, names, self._example, self._clicked)
        self._handles = self._add_handles("point_handles", rotates=False)
        self._hand_handles = self._add_handles("hand_handles", rotates=True)
        self._panel = Panel(self.server.gui, session, self._act)
        self._panel.save.on_click(lambda _: self._save())
        self._draw()
        camera = self.server.initial_camera
        camera.fov = FIELD_OF_VIEW
        camera.position, camera.look_at = view_of(session.surface, self._example)

    def close(self) -> None:
        """Ends the trial that may run, and the page."""
        with self._lock:
            if self._trial is not None:
                self._trial.stop()
        stop_viser(self.server)

    def _act(self, do: Callable[[], None]) -> None:
        """Does something to the session, redraws the page, and reports errors there."""
        with self._lock:
            try:
                do()
            except OSError as error:
                self._notify("The labels could not be written", str(error))
            except (FleetToolsError, ValueError) as error:  # ValueError: it is no pose, or no label
                self._notify("Not possible", str(error))
            self._draw()

    def _clicked(self, origin: np.ndarray, direction: np.ndarray) -> None:
        self._act(lambda: self.session.click(origin, direction))

    def _save(self) -> None:
        """Writes the model, and lets the expert try it."""
        with self._lock:
            if self._trial is not None:
                self._trial.stop()
            self._panel.save.disabled = True
            self._panel.details.content, began = "", time.monotonic()

            def tell(stage: str) -> None:
                seconds = time.monotonic() - began
                self._panel.report.content = f"Writing the model, {seconds:.0f} s: {literal(stage)}"

            tell("beginning")
            try:
                warnings = self.session.write(tell)
            except (FleetToolsError, OSError) as error:
                self._panel.report.content = f"**Not written.** {literal(error)}"
                self._draw()
                return
            folder = self.session.subject.identity.folder
            lines = [f"Written to {literal(folder)}."]
            lines += [f"Warning: {literal(each)}." for each in warnings]
            lines.append("The model is checked, and the expert tries it ...")
            self._panel.report.content = "\n\n".join(lines)
            self._trial = trial = TrialProcess(folder, self._scenes, self._seed, self._task)
            self._draw()
        threading.Thread(target=self._follow, args=(trial, lines), daemon=True).start()

    def _follow(self, trial: TrialProcess, lines: list[str]) -> None:
        """Shows what a trial finds."""
        found = trial.result()
        with self._lock:
            if trial is not self._trial or found is None:
                return
            lines = lines[:-1]
            if isinstance(found, str):
                lines.append(f"**The check failed.** {literal(found)}")
            else:
                text = literal_html(report_text(found))
                self._panel.details.content = f'<pre style="{_REPORT_STYLE}">{text}</pre>'
            self._panel.report.content = "\n\n".join(lines)

    def _draw(self) -> None:
        session = self.session
        with self.server.atomic():
            if session.surface is not self._drawn:
                self._drawn = session.surface
                self._view.draw_surface(session.surface)
            self._view.draw_labels(session.surface, session.points(), session.first)
            self._view.draw_hand(session.hand())
            self._draw_handles()
            self._panel.draw()

    def _add_handles(self, name: str, rotates: bool) -> "viser.TransformControlsHandle":
        handles = self.server.scene.add_transform_controls(
            f"/work/{name}", disable_rotations=not rotates, depth_test=False, visible=False
        )
        handles.on_update(self._dragged_to)
        return handles

    def _draw_handles(self) -> None:
        """Draws the handles with which the present item can be dragged."""
        session = self.session
        is_hand, hand = session.item == HAND_ITEM, session.hand()
        labelled = session.is_labelled(session.item)
        pair = self._hand_handles, self._handles
        handles, others = pair if is_hand else pair[::-1]
        others.visible, handles.visible = False, labelled
        if not labelled:
            return
        handles.scale = HANDLES * size(session.surface)
        if is_hand and hand is not None:
            handles.position = np.array(hand.translation_m)
            handles.wxyz = hand.to_transform().rotation().ToQuaternion().wxyz()
        else:
            handles.position = session.points()[session.item]

    def _dragged_to(self, event: "viser.TransformControlsEvent") -> None:
        """Takes over where a person has dragged the present item, once it is let go."""
        if event.phase != "end":
            return
        target = event.target

        def place() -> None:
            if self.session.item == HAND_ITEM:
                self.session.place_hand(pose_of(target.position, target.wxyz))
            else:
                self.session.place(np.array(target.position, float))

        self._act(place)

    def _notify(self, title: str, text: str) -> None:
        for client in self.server.get_clients().values():
            with contextlib.suppress(Exception):  # the page was closed meanwhile
                client.add_notification(title, plain(text), auto_close_seconds=8, color="red")
