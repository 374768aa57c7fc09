"""What hostile clients do to the servers of policies and of Blender: in an attack, and after it.

Each attack is tried on a server in a process of its own, while a good client asks it again and
again. Afterwards, the good client must be served, and memory, descriptors and threads must be what
they were.
"""

import contextlib
import os
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from attacked_server import DIALECTS, TOKEN
from attacks import ATTACKS, SHORT_OF, Resources, Target
from scaffold import Child, main_of, print_now, table_head, table_row

from fleet_tools.config.values import Count
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.server_access import TOKEN_VARIABLE
from fleet_tools.utils import cli

_SETTLES_S = 30.0


@dataclass(frozen=True)
class Found:
    """What an attack did.

    Attributes:
        kind, attack: Server, and name of the attack.
        tried, served: How often a good client asked during the attack, and was served.
        served_after_s: Time after its end until a good client was served, s.
        dropped: Number of connections that the server says it dropped.
        processor_s: Processor time of the server, s.
        before, height, after: What it held before the attack, at most, and after it.
    """

    kind: str
    attack: str
    tried: int
    served: int
    served_after_s: float
    dropped: int
    processor_s: float
    before: Resources
    height: Resources
    after: Resources

    @property
    def is_well(self) -> bool:
        """Whether the server is what it was."""
        return (
            self.served_after_s < _SETTLES_S
            and self.after.descriptors <= self.before.descriptors
            and self.after.threads <= self.before.threads
            and self.after.memory_mb < self.before.memory_mb + 30
        )


def certificate(folder: Path) -> None:
    """Writes `certificate.pem` and `key.pem` of 127.0.0.1; needs openssl."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )


def attacked(kind: str, attack: str, clients: int, seconds: float, folder: Path | None) -> Found:
    """Attacks a server.

    Args:
        kind: What it serves, see `attacked_server`.
        attack: Name of an attack.
        clients: Number of hostile clients.
        seconds: Time for which the attack goes on, s.
        folder: Folder with certificate and key; None is without TLS.
    """
    arguments = [kind, str(folder or ""), SHORT_OF.get(attack, "")]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Child("attacked_server.py", arguments))
        tls = (
            None
            if folder is None
            else ssl.create_default_context(cafile=folder / "certificate.pem")
        )
        if folder is not None:
            given = {"SSL_CERT_FILE": str(folder / "certificate.pem"), TOKEN_VARIABLE: TOKEN}
            os.environ.update(given)
            tls = ssl.create_default_context(cafile=given["SSL_CERT_FILE"])
            stack.callback(lambda: [os.environ.pop(name) for name in given])
        target = Target(kind, server.answer(), server.pid, tls)
        for _ in range(3):  # what it loads with its first clients, it keeps
            if _served_after_s(target) >= _SETTLES_S:
                raise FleetToolsError("The server does not serve a good client.")
        before = _settled(target)
        begun_s = _processor_s(target.pid)
        height, tried, served = before, 0, 0
        steps = ATTACKS[attack](target, clients)
        hostile = next(steps)
        end = time.monotonic() + seconds
        next_step = 0.0
        while True:
            if time.monotonic() >= next_step:
                hostile = next(steps, hostile)
                next_step = time.monotonic() + 1.0
            height = height.largest(target.resources())
            tried += 1
            served += target.is_served()
            if time.monotonic() >= end:
                break
            time.sleep(0.2)
        for client in hostile:
            client.close()
        served_after_s = _served_after_s(target)
        after = _settled(target, before)
        server.ask("dropped")
        return Found(
            f"{kind}, TLS" if tls else kind,
            attack,
            tried,
            served,
            round(served_after_s, 2),
            sum(server.answer().values()),
            round(_processor_s(target.pid) - begun_s, 2),
            before,
            height,
            after,
        )


def _served_after_s(target: Target) -> float:
    """Returns after which time a good client is served, s; about `_SETTLES_S` if it is not."""
    begin = time.monotonic()
    while not target.is_served() and time.monotonic() < begin + _SETTLES_S:
        time.sleep(0.05)
    return time.monotonic() - begin


def _settled(target: Target, wanted: Resources | None = None) -> Resources:
    """Returns the resources as soon as they are those that are wanted; by default after 1 s."""
    end = time.monotonic() + (1.0 if wanted is None else _SETTLES_S)
    while True:
        found = target.resources()
        if time.monotonic() > end or (wanted is not None and found[1:] <= wanted[1:]):
            return found
        time.sleep(0.1)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- The program ----------------------------------------------------------------------------


class HostileClientsOptions(cli.Options):
    """Attacks servers on this machine, and prints what that did. Linux only.

    Exit codes:
    0: all servers were afterwards what they were before.
    1: one was not.
    """

    clients: Count = 1000
    """Number of hostile clients at the same time."""
    seconds: Count = 5
    """Time for which they stay, s."""


COLUMNS = (
    *("server", "clients", "good ones served", "after, s", "dropped", "processor, s"),
    *("memory, MB", "descriptors", "threads"),
)


def _benchmark(options: HostileClientsOptions) -> int:
    all_found = []
    print_now(options, table_head(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        certificate(Path(folder))
        for kind in (*DIALECTS, "Blender"):
            for tls in (None, Path(folder)) if kind in DIALECTS else (None,):
                for attack in ATTACKS:
                    found = attacked(kind, attack, options.clients, options.seconds, tls)
                    all_found.append(found)
                    print_now(options, table_row(_cells(found)))
    report = {"servers": [asdict(each) for each in all_found]}
    options.report(report, lambda: f"\n{options.clients} clients, {options.seconds} s each.")
    return cli.OK if all(each.is_well for each in all_found) else cli.FAILED


def _cells(found: Found) -> list[str]:
    return [
        *(found.kind, found.attack, f"{found.served} of {found.tried}"),
        *(f"{found.served_after_s:.2f}", f"{found.dropped:,}", f"{found.processor_s:.2f}"),
        *(
            " / ".join(f"{each:.0f}" for each in three)
            for three in zip(found.before, found.height, found.after, strict=True)
        ),
    ]


main = main_of(__file__, HostileClientsOptions, _benchmark)

if __name__ == "__main__":
    sys.exit(main())
