"""How long a file does not grow."""

import threading
import time


class Pauses(threading.Thread):
    """The longest time for which a file did not grow, from its first octet to `stop`."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.longest, self.stopped = path, 0.0, threading.Event()
        self.start()

    def run(self):
        size, since = 0, None
        while not self.stopped.wait(0.02):
            found = self.path.stat().st_size if self.path.exists() else 0
            now = time.monotonic()
            if found != size:
                if since is not None:
                    self.longest = max(self.longest, now - since)
                size, since = found, now

    def stop(self):
        self.stopped.set()
        self.join()
        return self.longest
