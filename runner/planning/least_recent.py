"""A bounded cache for graphs, plans, and what is known of calls."""

import threading
from collections import OrderedDict
from collections.abc import Callable


class LeastRecent:
    """A thread-safe cache that forgets what was not used for longest."""

    def __init__(self, limit: int):
        self.limit, self.items, self.lock = limit, OrderedDict(), threading.Lock()

    def get(self, key, make: Callable):
        """What is kept under a key, which make() makes where there is nothing; None is nothing."""
        value = self.find(key)
        return self.put(key, make()) if value is None else value

    def find(self, key):
        with self.lock:
            if key in self.items:
                self.items.move_to_end(key)
                return self.items[key]
        return None

    def put(self, key, value):
        with self.lock:
            self.items[key] = value
            while len(self.items) > self.limit:
                self.items.popitem(last=False)
        return value
