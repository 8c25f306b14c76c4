"""A bounded cache for graphs, plans, and what is known of calls."""

import threading
from collections import OrderedDict
from collections.abc import Callable


class LeastRecent:
    """A thread-safe cache that forgets what was not used for longest. last: what was found last."""

    def __init__(self, limit: int):
        self.limit, self.items, self.lock, self.last = limit, OrderedDict(), threading.Lock(), None

    def __reduce__(self):
        """Copies begin with nothing."""
        return LeastRecent, (self.limit,)

    def get(self, key, make: Callable):
        """What is kept under a key, which make() makes where there is nothing; None is nothing."""
        value = self.find(key)
        return self.put(key, make()) if value is None else value

    def find(self, key):
        """A key is long: found again at once, it is hashed and compared once, and nothing is locked."""
        value = self.items.get(key)
        if value is None or value is self.last:
            return value
        with self.lock:
            if key in self.items:
                self.items.move_to_end(key)
                self.last = value
        return value

    def put(self, key, value):
        with self.lock:
            self.items[key] = self.last = value
            while len(self.items) > self.limit:
                self.items.popitem(last=False)
        return value
