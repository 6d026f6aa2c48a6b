"""Works without a pause while the test breaks the cluster, and prints what was lost.

    faults.py LIBRARY ENDPOINT,ENDPOINT,...

Each line on standard input orders something: "progress" prints "progress" once every worker has done more since, and "end"
prints the results and ends. A worker whose attempt fails connects to the next endpoint and tries again. An attempt without
an answer may have taken effect, so each worker finds out what is there before it goes on.
"""
import importlib
import itertools
import sys
import threading
import time

sys.dont_write_bytecode = True
library = importlib.import_module("faults_" + sys.argv[1])
endpoints = sys.argv[2].split(",")
ending = threading.Event()
retries = itertools.count()
PAUSE = 0.02
TTL = 20


def say(*values):
    print(*values, flush=True)


class Worker(threading.Thread):
    """Repeats step on a connection of its own until the end. steps counts the rounds."""

    first = itertools.count()
    ending = ending  # the worker ends when this is set

    def __init__(self):
        super().__init__(daemon=True)
        self.steps, self.failure, self.client = 0, None, None
        self.at = next(self.first)

    def connect(self):
        if self.client is None:
            self.client = library.Client(endpoints[self.at % len(endpoints)])
        return self.client

    def again(self, error):
        """Moves on to the next endpoint, unless the error is not one of a broken connection or a busy cluster."""
        if not library.transient(error):
            raise error
        next(retries)
        if self.client is not None:
            self.client.close()
        self.client, self.at = None, self.at + 1
        time.sleep(0.1)

    def run(self):
        try:
            while not self.ending.is_set():
                try:
                    self.step(self.connect())
                    self.steps += 1
                    time.sleep(PAUSE)
                except Exception as error:
                    self.again(error)
        except Exception as error:
            self.failure = error

    def until(self, call):
        """Repeats a call that only reads, or that may be repeated, until it is answered."""
        while True:
            try:
                return call(self.connect())
            except Exception as error:
                self.again(error)


class Writer(Worker):
    """Puts one key after the other. Each acknowledged one must be there at the end."""

    def __init__(self):
        super().__init__()
        self.acknowledged = 0

    def step(self, client):
        client.put("written/%06d" % (self.acknowledged + 1), str(self.acknowledged + 1))
        self.acknowledged += 1

    def results(self):
        there = self.until(lambda c: c.get_prefix("written/"))
        missing = [n for n in range(1, self.acknowledged + 1) if there.get("written/%06d" % n) != str(n)]
        yield "acknowledged writes that are missing", missing


class Counter(Worker):
    """Counts up by a transaction. Only an attempt without an answer may count without being acknowledged."""

    def __init__(self):
        super().__init__()
        self.acknowledged = self.unknown = 0

    def step(self, client):
        value = client.get("counter")
        following = str(int(value or "0") + 1)
        try:
            done = client.replace("counter", value, following) if value else client.create("counter", following)
        except Exception:
            self.unknown += 1
            raise
        if done:
            self.acknowledged += 1

    def results(self):
        value = int(self.until(lambda c: c.get("counter")))
        yield "the counter counts each acknowledged step once", self.acknowledged <= value <= self.acknowledged + self.unknown


class Holder(Worker):
    """Keeps a lease alive. Its key must never go. It ends when all others have."""

    ending = threading.Event()

    def __init__(self):
        super().__init__()
        self.lease = self.until(lambda c: c.lease(TTL))
        self.until(lambda c: c.put("held", "yes", self.lease))
        self.created = self.until(lambda c: c.created("held"))

    def step(self, client):
        if client.refresh(self.lease) <= 0:
            raise AssertionError("the lease has ended")
        if client.created("held") != self.created:
            raise AssertionError("the key of the lease was gone")
        time.sleep(0.2)

    def results(self):
        yield "the key of the lease is there", self.until(lambda c: c.created("held")) == self.created


class Watcher(Worker):
    """Watches what the writer puts, and begins again where it was. It must see each key once and in order."""

    def __init__(self, writer):
        super().__init__()
        self.writer, self.seen, self.wrong, self.following = writer, [], [], 1

    def step(self, client):
        for key, revision in client.watch("written/", self.following):
            if revision < self.following:
                self.wrong.append(key)
            self.following = revision + 1
            if not self.seen or self.seen[-1] != key:  # a put that was repeated has two events
                self.seen.append(key)
            self.steps += 1
            if ending.is_set() and len(self.seen) >= self.writer.acknowledged:
                return

    def results(self):
        want = ["written/%06d" % n for n in range(1, len(self.seen) + 1)]
        yield "events out of order", self.wrong
        yield "the watcher saw each write in order", self.seen == want and len(self.seen) >= self.writer.acknowledged


class Locker(Worker):
    """Takes a lock in turns with another one. Never do both have it."""

    holders, entered = set(), 0

    def step(self, client):
        # The lock's name is the same for each attempt. An attempt without an answer may have it, until its lease ends.
        with client.lock("job", 5) as mine:
            if not mine:
                return
            began = time.monotonic()
            if Locker.holders:
                raise AssertionError("two workers have the lock")
            Locker.holders.add(self)
            Locker.entered += 1
            time.sleep(0.05)
            Locker.holders.discard(self)
            if time.monotonic() - began > 2:
                raise AssertionError("the machine is too slow for this test: a lock was held for too long")

    def results(self):
        yield "the lock was taken", Locker.entered > 0


def main():
    writer = Writer()
    workers = [writer, Counter(), Holder(), Watcher(writer), Locker(), Locker()]
    for worker in workers:
        worker.start()
    for line in sys.stdin:
        if line.strip() == "end":
            break
        before = [w.steps for w in workers]
        while not all(w.steps > n + 2 for w, n in zip(workers, before)):
            for w in workers:
                if w.failure is not None or not w.is_alive():
                    say("failed: %s: %r" % (type(w).__name__, w.failure))
                    return
            time.sleep(0.05)
        say("progress:", *["%s %d" % (type(w).__name__, w.steps) for w in workers], "retries", next(retries))
    ending.set()
    # The watcher ends by an event.
    last = Writer()
    last.acknowledged = writer.acknowledged
    for w in sorted(workers, key=lambda w: isinstance(w, Holder)):
        if isinstance(w, Holder):
            w.ending.set()
        while w.is_alive():
            w.join(0.5)
            if isinstance(w, Watcher) and w.is_alive():
                last.until(lambda c: c.put("written/%06d" % (writer.acknowledged + 1), str(writer.acknowledged + 1)))
    for w in workers:
        if w.failure is not None:
            say("failed: %s: %r" % (type(w).__name__, w.failure))
        for what, result in w.results():
            say("%s: %s" % (what, result))
    say("done: all parts")


main()
