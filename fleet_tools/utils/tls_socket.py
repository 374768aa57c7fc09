"""TLS connections that one thread reads while others write to them."""

import contextlib
import socket
import ssl
import threading
from typing import Any

_CHUNK = 2**16


class TlsSocket(socket.socket):
    """A TLS connection, from which one thread may receive while others send.

    OpenSSL allows one thread at a time to use a connection, which `ssl.SSLSocket` leaves to its
    users: where one thread receives while another sends, as in websockets, messages are lost and
    connections hang. Here a lock encloses each use, and nobody holds it while the network is waited
    for. Only `recv`, `send` and `sendall` are encrypted. `shutdown` ends TCP alone.

    Args:
        connected: The connection, which this one takes over with its timeout.
        context: Settings of TLS.
        server_hostname: Name or address for which the server's certificate must be; None is the
            server itself.

    Raises:
        OSError: There is no connection any more.
        ValueError: `server_hostname` is no name.
    """

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
    ) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._received,
            self._to_send,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._using, self._sending = threading.Lock(), threading.Lock()
        timeout = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self.settimeout(timeout)

    def do_handshake(self) -> None:
        """Agrees with the other side on keys, before anything is sent or received.

        Raises:
            OSError: The other side speaks otherwise, its certificate is refused, or it has left.
        """
        while True:
            try:
                self._tls.do_handshake()
                return self._flush()
            except ssl.SSLWantReadError:
                self._flush()
                self._read_on()
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # it has left
                    self._flush()  # the other side is told why
                raise

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Returns at most `bufsize` bytes, decrypted; none at the end of the stream."""
        while True:
            try:
                with self._using:
                    return self._tls.read(bufsize)
            except ssl.SSLWantReadError:
                self._flush()
                self._read_on()
            except ssl.SSLEOFError:  # it has closed the connection without a word of TLS
                return b""

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends the first bytes, encrypted; returns their number."""
        with self._sending:
            with self._using:
                count = self._tls.write(data)
                encrypted = self._to_send.read()
            super().sendall(encrypted)
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends all bytes, encrypted."""
        with memoryview(data).cast("B") as left:
            sent = 0
            while sent < len(left):
                sent += self.send(left[sent:])

    def _flush(self) -> None:
        """Sends what TLS itself has to say."""
        if self._to_send.pending:
            with self._sending:
                with self._using:
                    encrypted = self._to_send.read()
                super().sendall(encrypted)

    def _read_on(self) -> None:
        content = super().recv(_CHUNK)
        with self._using:
            if content:
                self._received.write(content)
            else:
                self._received.write_eof()
