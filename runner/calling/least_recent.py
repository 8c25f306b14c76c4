"""A bounded cache for plans and graphs."""

import threading
from collections import OrderedDict
from collections.abc import Callable


class LeastRecent:
    """A thread-safe cache that forgets what was not used for longest."""

    def __init__(self, limit: int):
        self.limit, self.items, self.lock = limit, OrderedDict(), threading.Lock()

    def get(self, key, make: Callable):
        with self.lock:
            if key in self.items:
                self.items.move_to_end(key)
                return self.items[key]
        value = make()
        with self.lock:
            self.items[key] = value
            while len(self.items) > self.limit:
                self.items.popitem(last=False)
        return value
