"""Uses everything that python3-etcd3 offers, against a fresh cluster, and prints a line for each answer.

    etcd3_features.py ENDPOINT DIRECTORY
"""
import hashlib
import os
import sys
import threading
import time

import etcd3
import etcd3.exceptions
import grpc

host, port = sys.argv[1].split(":")
directory = sys.argv[2]
TIMEOUT = 30
names = {}


def name(kind, number):
    """Returns a name for an id, which differs from run to run."""
    return names.setdefault((kind, number), "%s %d" % (kind, sum(k == kind for k, _ in names) + 1))


def say(what, *values):
    print("%s: %s" % (what, " ".join(str(v) for v in values)), flush=True)


def fails(what, call):
    try:
        say(what, "no error,", call())
    except grpc.RpcError as e:
        say(what, e.code().name, e.details())
    except etcd3.exceptions.Etcd3Exception as e:
        say(what, type(e).__name__, str(e), getattr(e.__cause__, "details", lambda: "")())


def meta(m):
    return "%s created %d changed %d version %d lease %s at %d" % (
        m.key.decode(), m.create_revision, m.mod_revision, m.version,
        name("lease", m.lease_id) if m.lease_id else "none", m.response_header.revision)


def pairs(found):
    return ["%s=%s" % (m.key.decode(), v.decode()) for v, m in found]


def event(e):
    return "%s %s=%s version %d before %s" % (type(e).__name__, e.key.decode(), e.value.decode(), e.version, e.prev_value.decode())


def keys(c):
    say("get of no key", c.get("absent"))
    say("put", c.put("a", "1").header.revision)
    say("put returns the former value", c.put("a", "2", prev_kv=True).prev_kv.value.decode())
    value, m = c.get("a")
    say("get", value.decode(), meta(m))
    value, m = c.get("a", serializable=True)
    say("serializable get", value.decode(), meta(m))
    for i in range(5):
        c.put("list/%d" % i, str(9 - i))
    c.put("bytes", b"\x00\xff\n")
    say("bytes", c.get("bytes")[0])
    say("empty value", c.put("empty", "").header.revision, c.get("empty")[0])
    say("prefix", pairs(c.get_prefix("list/")))
    say("prefix, descending", pairs(c.get_prefix("list/", sort_order="descend")))
    for target in ("key", "version", "create", "mod", "value"):
        say("prefix by " + target, pairs(c.get_prefix("list/", sort_order="ascend", sort_target=target)))
    say("prefix, keys only", pairs(c.get_prefix("list/", keys_only=True)))
    response = c.get_prefix_response("list/", limit=2)
    say("prefix with a limit", response.more, response.count, len(response.kvs))
    say("range", pairs(c.get_range("list/1", "list/3")))
    say("all", len(list(c.get_all())), c.get_all_response().count)
    say("put if absent", c.put_if_not_exists("once", "x"), c.put_if_not_exists("once", "y"), c.get("once")[0])
    say("replace", c.replace("once", "x", "z"), c.replace("once", "x", "w"), c.get("once")[0])
    say("delete", c.delete("once"), c.delete("once"))
    say("delete returns the former value", [kv.value for kv in c.delete("a", prev_kv=True, return_response=True).prev_kvs])
    say("delete of a prefix", c.delete_prefix("list/").deleted)
    fails("put with no key", lambda: c.put("", "x"))
    fails("put with an unknown lease", lambda: c.put("a", "1", lease=12345))


def transactions(c):
    t = c.transactions
    c.put("t/a", "5")
    compares = {
        "value equals": t.value("t/a") == "5", "value differs": t.value("t/a") != "5",
        "value less": t.value("t/a") < "6", "value greater": t.value("t/a") > "6",
        "version": t.version("t/a") == 1, "version of no key": t.version("t/none") == 0,
        "created": t.create("t/a") > 1, "created later": t.create("t/a") > 1000000,
        "changed": t.mod("t/a") < 1000000, "changed never": t.mod("t/none") == 0,
    }
    for what, compare in compares.items():
        say("compare " + what, c.transaction([compare], [t.get("t/a")], [])[0])
    done, answers = c.transaction(
        [t.value("t/a") == "5", t.version("t/b") == 0],
        [t.put("t/b", "6"), t.get("t/b"), t.delete("t/a"), t.get("t/none")], [t.put("t/c", "7")])
    say("transaction", done, answers[0].response_put.header.revision, pairs(answers[1]),
        answers[2].response_delete_range.deleted, answers[3])
    done, answers = c.transaction(
        [t.value("t/a") == "5"], [], [t.get("t/b"), t.txn([t.value("t/b") == "6"], [t.put("t/d", "8")], [])])
    say("transaction inside another", done, pairs(answers[0]), answers[1].response_txn.succeeded, c.get("t/d")[0])
    say("empty transaction", c.transaction([], [], []))
    fails("two puts of a key", lambda: c.transaction([], [t.put("t/x", "1"), t.put("t/x", "2")], []))
    say("after that", c.get("t/x"))


def watches(c):
    seen, done = [], threading.Event()

    def callback(response):
        seen.extend(event(e) for e in response.events)
        if len(seen) >= 5:
            done.set()

    before = c.put("w/0", "old").header.revision
    watch = c.add_watch_prefix_callback("w/", callback, prev_kv=True)
    c.put("w/1", "new")
    c.put("w/1", "newer")
    c.delete("w/1")
    c.transaction([], [c.transactions.put("w/2", "a"), c.transactions.put("w/3", "b")], [])
    done.wait(TIMEOUT)
    c.cancel_watch(watch)
    say("watched", seen)
    events, cancel = c.watch_prefix("w/", start_revision=before)
    say("watched from a revision", [event(next(events)) for _ in range(6)])
    cancel()
    responses, cancel = c.watch_response("w/2", start_revision=before)
    say("watched responses", len(next(responses).events))
    cancel()
    threading.Timer(0.2, lambda: c.put("w/later", "x")).start()
    say("watched once", event(c.watch_once("w/later", timeout=TIMEOUT)))
    fails("watched in vain", lambda: c.watch_once("w/never", timeout=0.3))


def leases(c):
    lease = c.lease(60)
    say("lease", name("lease", lease.id), lease.ttl)
    c.put("l/1", "x", lease=lease)
    c.put("l/2", "x", lease=lease.id)
    say("its keys", sorted(k.decode() for k in lease.keys), lease.granted_ttl, 50 < lease.remaining_ttl <= 60)
    say("refreshed", [r.TTL for r in lease.refresh()])
    say("key of a lease", meta(c.get("l/1")[1]))
    lease.revoke()
    say("revoked", pairs(c.get_prefix("l/")), lease.remaining_ttl, [r.TTL for r in lease.refresh()])
    fails("revoked twice", lease.revoke)
    chosen = c.lease(60, lease_id=4711)
    say("chosen id", chosen.id)
    fails("chosen twice", lambda: c.lease(60, lease_id=4711))
    c.revoke_lease(4711)
    fails("a lease without end", lambda: c.lease(10000000000))
    short = c.lease(1)
    say("shortest lease is granted at least its time", short.ttl >= 1)
    start = c.put("l/short", "x", lease=short).header.revision
    events, cancel = c.watch("l/short", start_revision=start + 1)
    say("ended", event(next(events)))
    cancel()
    info = c.get_lease_info(short.id)
    say("info of an ended lease", info.TTL, info.grantedTTL)


def acquired(c, lock):
    """Waits for a lock. The library's own wait does not work with the version of tenacity that Debian has, so this waits
    between attempts as the library would."""
    while not lock.acquire(timeout=0):
        try:
            c.watch_once(lock.key, timeout=1)
        except etcd3.exceptions.WatchTimedOut:
            pass
    return lock.is_acquired()


def locks(c):
    lock = c.lock("job", ttl=30)
    say("lock", lock.acquire(timeout=5), lock.is_acquired(), lock.key)
    other = c.lock("job", ttl=30)
    say("second lock", other.acquire(timeout=0), other.is_acquired())
    say("refreshed", [r.TTL for r in lock.refresh()])
    waiter = threading.Thread(target=lambda: say("waiter", acquired(c, other)))
    waiter.start()
    time.sleep(0.3)
    released = lock.release()
    waiter.join()
    say("released", released, lock.release(), other.is_acquired(), other.release())
    with c.lock("job", ttl=30) as held:
        say("in a block", held.is_acquired())
    say("after it", held.is_acquired())
    brief = c.lock("brief", ttl=2)
    say("brief lock", brief.acquire(), acquired(c, c.lock("brief", ttl=2)), brief.is_acquired())


def maintenance(c):
    status = c.status()
    say("status", status.version.count("."), status.db_size > 0, status.leader.name in "abc", status.raft_index > 0, status.raft_term > 0)
    before = c.hash()
    say("hash", before != 0, before == c.hash(), c.put("h", "1").header.revision > 0, before != c.hash())
    path = os.path.join(directory, "snapshot")
    with open(path, "wb") as f:
        c.snapshot(f)
    with open(path, "rb") as f:
        data = f.read()
    say("snapshot", hashlib.sha256(data[:-32]).digest() == data[-32:], data[16:20][::-1].hex(), (len(data) - 32) % 4096)
    say("defragmented", c.defragment())
    last = c.put("compacted", "1").header.revision
    for i in range(3):
        last = c.put("compacted", str(i)).header.revision
    say("compacted", c.compact(last))
    try:
        events, cancel = c.watch("compacted", start_revision=1)
        say("watch before that", next(events))
    except etcd3.exceptions.RevisionCompactedError as e:
        say("watch before that", e.compacted_revision == last)
    fails("compacted twice", lambda: c.compact(last))
    fails("compacted in the future", lambda: c.compact(last + 1000))
    say("compacted physically", c.compact(c.put("compacted", "x").header.revision, physical=True))


def kinds(found):
    """Returns the kinds of alarms. Which members have them differs: to etcd, 0 is the id of a member."""
    return sorted({a.alarm_type for a in found})


def alarms(c):
    say("alarms", kinds(c.list_alarms()))
    say("alarm", kinds(c.create_alarm()))
    say("alarms", kinds(c.list_alarms()), kinds(c.list_alarms(alarm_type="no space")))
    fails("put without space", lambda: c.put("full", "x"))
    say("get without space", c.get("full"))
    say("disarmed", kinds(c.disarm_alarm()))
    say("alarms", kinds(c.list_alarms()), c.put("full", "x").header.revision > 0)


def members(c):
    everyone = sorted(c.members, key=lambda m: m.name)
    say("members", [(m.name, len(m.peer_urls), len(m.client_urls)) for m in everyone], len({m.id for m in everyone}))
    say("their alarms", [list(m.active_alarms) for m in everyone])
    added = c.add_member(["http://127.0.0.1:19998"])
    say("added", added.name, list(added.peer_urls), list(added.client_urls), len(list(c.members)))
    fails("added twice", lambda: c.add_member(["http://127.0.0.1:19998"]))
    added.update(["http://127.0.0.1:19999"])
    say("updated", [list(m.peer_urls) for m in c.members if m.id == added.id])
    added.remove()
    say("removed", len(list(c.members)))
    fails("removed twice", added.remove)
    fails("unknown member", lambda: c.update_member(12345, ["http://127.0.0.1:19997"]))


def users(c):
    """Enables authentication by the plain requests, which the library contains. Its own part is the log-in."""
    rpc, auth = etcd3.etcdrpc, etcd3.etcdrpc.AuthStub(c.channel)

    def new(user, password):
        client = etcd3.client(host=host, port=int(port), user=user, password=password, timeout=TIMEOUT)
        # gRPC refuses these on a connection without TLS. The token is in the metadata, too.
        client.call_credentials = client.watcher._credentials = None
        return client

    fails("user without users", lambda: new("root", "x"))
    for user in ("root", "reader"):
        auth.UserAdd(rpc.AuthUserAddRequest(name=user, password="secret"))
        auth.RoleAdd(rpc.AuthRoleAddRequest(name=user))
        auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=user))
    auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="reader", perm={
        "permType": "READ", "key": b"u/", "range_end": b"u0"}))
    c.put("u/1", "x")
    auth.AuthEnable(rpc.AuthEnableRequest())
    fails("nobody reads", lambda: c.get("u/1"))
    fails("nobody writes", lambda: c.put("u/1", "y"))
    fails("wrong password", lambda: new("reader", "guess"))
    fails("unknown user", lambda: new("stranger", "secret"))
    root, reader = new("root", "secret"), new("reader", "secret")
    say("root writes", root.put("u/2", "y").header.revision > 0, root.put("v", "y").header.revision > 0)
    say("reader reads", pairs(reader.get_prefix("u/")))
    fails("reader writes", lambda: reader.put("u/1", "y"))
    fails("reader reads elsewhere", lambda: reader.get("v"))
    fails("reader writes in a transaction", lambda: reader.transaction([], [c.transactions.put("u/1", "y")], []))
    fails("reader adds a member", lambda: reader.add_member(["http://127.0.0.1:19998"]))
    say("reader has a lease", reader.lease(60).ttl)
    events, cancel = reader.watch("u/1", start_revision=reader.get("u/1")[1].mod_revision)
    say("reader watches", event(next(events)))
    cancel()
    etcd3.etcdrpc.AuthStub(root.channel).AuthDisable(rpc.AuthDisableRequest(), metadata=root.metadata)
    say("nobody reads again", c.get("u/1")[0])


def main():
    c = etcd3.client(host=host, port=int(port), timeout=TIMEOUT)
    for part in (keys, transactions, watches, leases, locks, maintenance, alarms, members, users):
        say("part", part.__name__)
        part(c)
    with etcd3.client(host=host, port=int(port), timeout=TIMEOUT) as other:
        say("second client", other.get("h")[0])
    say("done", "all parts")


main()
