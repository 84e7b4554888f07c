"""A proxy in front of the receiver's address whose connections can be made to fail."""

import contextlib
import socket
import struct
import threading

CHUNK = 65_536


class Proxy:
    """Forwards connections from (`host`, `port`) to the same port of 127.0.0.1, until another
    method changes that.
    """

    def __init__(self, host, port, random):
        self.random = random
        self.port = port
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._pairs = []
        self._to_corrupt = None
        self.corrupted = False
        self._listener = socket.create_server((host, port), backlog=64)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Closing alone would not wake who accepts, and leave the port in use.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.restore()
        self._accepting.join()
        self.reset()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._flowing.wait()
                try:
                    far = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    _reset(near)
                    continue
                with self._lock:
                    self._pairs.append((near, far))
                for way in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._carry, args=way, daemon=True).start()

    def _carry(self, source, sink, way):
        try:
            while True:
                self._flowing.wait()
                data = source.recv(CHUNK)
                # What was underway when the line went is gone until it is back.
                self._flowing.wait()
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(self._perhaps_corrupt(data, way))
        except OSError:
            # A reset at one end is one at the other, once the line carries it.
            self._flowing.wait()
            for end in (source, sink):
                _reset(end)

    def _perhaps_corrupt(self, data, way):
        with self._lock:
            if self._to_corrupt != way:
                return data
            self._to_corrupt, self.corrupted = None, True
            changed = bytearray(data)
            at = self.random.randrange(len(changed))
            while _is_version(data, at):
                at = self.random.randrange(len(changed))
            changed[at] ^= 1 << self.random.randrange(8)
            return bytes(changed)

    def black_out(self):
        """Carries nothing from here on; new connections get no answer."""
        self._flowing.clear()

    def restore(self):
        self._flowing.set()

    def corrupt(self, way):
        """Flips a bit of what comes next from the sender ("up") or to it ("down")."""
        with self._lock:
            self._to_corrupt = way

    def reset(self):
        """Resets every connection, on both sides."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _reset(end)


def _is_version(data, at):
    """Whether this byte is of the version in the header of a record, which TLS 1.3 has everybody
    ignore: 0x17 (data), 3, 3.
    """
    return any(
        data[start : start + 3] == b"\x17\x03\x03" for start in (at - 1, at - 2) if start >= 0
    )


def _reset(end):
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes the thread that reads it; closing alone does not.
        end.shutdown(socket.SHUT_RD)
        end.close()
