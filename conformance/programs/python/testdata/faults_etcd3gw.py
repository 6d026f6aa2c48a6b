"""python3-etcd3gw for faults.py."""
import contextlib
import json

import requests
from etcd3gw import exceptions
from etcd3gw.client import Etcd3Client
from etcd3gw.lease import Lease

TIMEOUT = 5


def transient(error):
    if isinstance(error, (exceptions.ConnectionFailedError, exceptions.ConnectionTimeoutError, requests.exceptions.RequestException)):
        return True
    if isinstance(error, exceptions.Etcd3Exception):
        try:
            return json.loads(error.detail_text)["code"] in (4, 14)  # DeadlineExceeded, Unavailable
        except (TypeError, ValueError, KeyError):
            return False
    # A stream that ends has no result: the library then finds no key "result".
    return isinstance(error, (KeyError, WatchEnded))


class WatchEnded(Exception):
    pass


class Client:
    def __init__(self, endpoint):
        host, port = endpoint.split(":")
        self.c = Etcd3Client(host=host, port=int(port), api_path="/v3/")
        # The library sets a timeout that requests ignores, so each request receives one here.
        post = self.c.session.post
        self.c.session.post = lambda *args, **kwargs: post(*args, **{"timeout": TIMEOUT, **kwargs})

    def close(self):
        self.c.session.close()

    def put(self, key, value, lease=None):
        self.c.put(key, value, lease=lease and Lease(lease))

    def get(self, key):
        found = self.c.get(key)
        return found[0].decode() if found else None

    def get_prefix(self, prefix):
        return {m["key"].decode(): v.decode() for v, m in self.c.get_prefix(prefix)}

    def created(self, key):
        found = self.c.get(key, metadata=True)
        return int(found[0][1]["create_revision"]) if found else None

    def replace(self, key, old, new):
        return self.c.replace(key, old, new)

    def create(self, key, value):
        return self.c.create(key, value)

    def lease(self, ttl):
        return self.c.lease(ttl).id

    def refresh(self, lease):
        return Lease(lease, self.c).refresh()

    def watch(self, prefix, revision):
        # The library's watch neither reports that its stream has ended, nor reads more than one answer of a chunk. So this
        # watches for one event at a time, as watch_prefix_once does, which begins each time where the last one was.
        while True:
            try:
                event = self.c.watch_prefix_once(prefix, timeout=TIMEOUT, start_revision=revision)
            except exceptions.WatchTimedOut:
                raise WatchEnded()
            revision = int(event["kv"]["mod_revision"]) + 1
            yield event["kv"]["key"].decode(), revision - 1

    @contextlib.contextmanager
    def lock(self, name, ttl):
        lock = self.c.lock(name, ttl=ttl)
        mine = lock.acquire()
        yield mine
        if mine:
            lock.release()
