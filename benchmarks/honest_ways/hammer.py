"""Honest ways on the hammer task: the face drives the nail, otherwise than the expert."""

from cheats.motion import Actions, DrivenArm, over

from honest_ways.edits import follow_edited, translate


def soft_blows(arm: DrivenArm) -> Actions:
    """Many soft blows, each from 3 cm above the nail."""
    head, R, done = arm.on_tool("head"), arm.level_hand(), arm.done()
    yield from arm.place(head, over("head", 0.04), R, 16)
    while not done(arm.state):
        yield from arm.place(head, over("head", 0.03), R, 3, speed=0.6)
        yield from arm.place(head, over("head", -0.02), R, 3, speed=0.6, until=done)


def press(arm: DrivenArm) -> Actions:
    """The face is laid upon the nail and pressed, without a blow."""
    head, R, done = arm.on_tool("head"), arm.level_hand(), arm.done()
    yield from arm.place(head, over("head", 0.04), R, 16)
    yield from arm.place(head, over("head", 0.0), R, 6, speed=0.3)
    yield from arm.place(head, over("head", -0.06), R, 30, speed=0.4, until=done)


def swing(arm: DrivenArm) -> Actions:
    """Blows that turn the hand, as from a wrist, instead of moving it along the nail."""
    head = arm.on_tool("head")
    yield from arm.place(head, over("head", 0.10), arm.level_hand(tilt_deg=35), 18)
    for _ in range(4):
        yield from arm.place(head, over("head", 0.10), arm.level_hand(tilt_deg=35), 6)
        yield from arm.place(head, over("head", -0.05), arm.level_hand(), 5, until=arm.done())


def from_the_left(arm: DrivenArm) -> Actions:
    """The handle points to the robot's right, with the hand on the nail's left."""
    yield from _from_beside(arm, (0.6, -0.8, 0.0))


def from_the_right(arm: DrivenArm) -> Actions:
    """The handle points to the robot's left, with the hand on the nail's right."""
    yield from _from_beside(arm, (0.6, 0.8, 0.0))


def tilted(arm: DrivenArm) -> Actions:
    """The face meets the nail at an angle of 8 degrees."""
    head, R = arm.on_tool("head"), arm.level_hand(tilt_deg=8)
    yield from arm.place(head, over("head", 0.10), R, 18)
    yield from arm.place(head, over("head", -0.05), R, 12, until=arm.done())


def off_center(arm: DrivenArm) -> Actions:
    """The face meets the nail 8 mm beside its middle."""
    term = {"offset_m": (0.0, 0.008, 0.0)}
    yield from follow_edited(arm, terms={0: term})


def after_a_miss(arm: DrivenArm) -> Actions:
    """A first blow beside the nail; then the expert's."""
    head, R = arm.on_tool("head"), arm.level_hand()
    yield from arm.place(head, over("head", 0.06, aside_m=0.05), R, 16)
    yield from arm.place(head, over("head", -0.03, aside_m=0.05), R, 4)
    yield from arm.shift([0.0, 0.0, 0.10], steps=3)
    yield from arm.follow_expert()


def leaves_at_once(arm: DrivenArm) -> Actions:
    """Short blows; the hammer is lifted away at once after each."""
    blow = [translate(0, 0, -0.035, speed=1.0), translate(0, 0, 0.10, speed=1.0)]
    again = [translate(0, 0, -0.12, speed=1.0), translate(0, 0, 0.12, speed=1.0)]
    yield from follow_edited(arm, after=[*blow, *again, *again])


def _from_beside(arm: DrivenArm, direction: tuple[float, float, float]) -> Actions:
    """Acts like the expert, with the handle along a direction of the world."""
    term = {
        "type": "axis_to_axis",
        "tool": ("tail", "head"),
        "world": direction,
        "tolerance_deg": 20.0,
    }
    yield from follow_edited(arm, more=[term])
