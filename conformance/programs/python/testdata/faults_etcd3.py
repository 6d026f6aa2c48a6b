"""python3-etcd3 for faults.py."""
import contextlib

import etcd3
import etcd3.exceptions
import grpc

TIMEOUT = 5


def transient(error):
    if isinstance(error, grpc.RpcError):
        return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    return isinstance(error, (etcd3.exceptions.ConnectionFailedError, etcd3.exceptions.ConnectionTimeoutError,
                              etcd3.exceptions.WatchTimedOut))


class Client:
    def __init__(self, endpoint):
        host, port = endpoint.split(":")
        self.c = etcd3.client(host=host, port=int(port), timeout=TIMEOUT)

    def close(self):
        self.c.close()

    def put(self, key, value, lease=None):
        self.c.put(key, value, lease=lease)

    def get(self, key):
        value, _ = self.c.get(key)
        return value and value.decode()

    def get_prefix(self, prefix):
        return {m.key.decode(): v.decode() for v, m in self.c.get_prefix(prefix)}

    def created(self, key):
        _, meta = self.c.get(key)
        return meta and meta.create_revision

    def replace(self, key, old, new):
        return self.c.replace(key, old, new)

    def create(self, key, value):
        return self.c.put_if_not_exists(key, value)

    def lease(self, ttl):
        return self.c.lease(ttl).id

    def refresh(self, lease):
        return [r.TTL for r in self.c.refresh_lease(lease)][-1]

    def watch(self, prefix, revision):
        responses, cancel = self.c.watch_prefix_response(prefix, start_revision=revision)
        try:
            for response in responses:
                for event in response.events:
                    yield event.key.decode(), event.mod_revision
        finally:
            cancel()

    @contextlib.contextmanager
    def lock(self, name, ttl):
        lock = self.c.lock(name, ttl=ttl)
        mine = lock.acquire(timeout=0)
        yield mine
        if mine:
            lock.release()
