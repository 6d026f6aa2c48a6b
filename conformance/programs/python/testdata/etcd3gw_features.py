"""Uses everything that python3-etcd3gw offers, against a fresh cluster, and prints a line for each answer.

    etcd3gw_features.py ENDPOINT DIRECTORY
"""
import json
import sys
import threading
import time

from etcd3gw import exceptions
from etcd3gw.client import Etcd3Client
from etcd3gw.utils import _encode

host, port = sys.argv[1].split(":")
TIMEOUT = 30
names = {}
HIDDEN = ("cluster_id", "member_id", "raft_term")


def name(kind, number):
    """Returns a name for an id, which differs from run to run."""
    return names.setdefault((kind, int(number)), "%s %d" % (kind, sum(k == kind for k, _ in names) + 1))


def say(what, *values):
    print("%s: %s" % (what, " ".join(str(v) for v in values)), flush=True)


def plain(value):
    """Returns an answer without what differs from run to run."""
    if isinstance(value, dict):
        return {k: name("lease", v) if k == "lease" else plain(v) for k, v in sorted(value.items()) if k not in HIDDEN}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def fails(what, call):
    try:
        say(what, "no error,", plain(call()))
    except exceptions.Etcd3Exception as e:
        text = e.detail_text or ""
        try:
            text = plain(json.loads(text.replace("\\u00a0", " ").replace("\u00a0", " ")))  # protobuf varies its blanks
        except ValueError:
            pass
        say(what, type(e).__name__, text, e.args)


def keys(c):
    say("get of no key", c.get("absent"))
    say("put", c.put("a", "1"), c.put("a", "2"))
    say("get", c.get("a"), plain(c.get("a", metadata=True)))
    for i in range(5):
        c.put("list/%d" % i, str(9 - i))
    c.put("bytes", b"\x00\xff\n")
    say("bytes", c.get("bytes"))
    say("empty value", c.put("empty", ""), c.get("empty"))
    say("prefix", plain(c.get_prefix("list/")))
    for order in ("ascend", "descend"):
        for target in ("key", "version", "create", "mod", "value"):
            say("prefix by %s, %s" % (target, order), [v for v, _ in c.get_prefix("list/", sort_order=order, sort_target=target)])
    say("limit", c.get("list/", range_end=_encode("list0"), limit=2))
    say("serializable", c.get("a", serializable=True))
    say("count only", c.get("list/", range_end=_encode("list0"), count_only=True))
    say("keys only", plain(c.get("list/", metadata=True, range_end=_encode("list0"), keys_only=True)))
    say("earlier revision", c.get("a", revision=2))
    say("all", len(c.get_all()))
    say("create", c.create("once", "x"), c.create("once", "y"), c.get("once"))
    say("replace", c.replace("once", "x", "z"), c.replace("once", "x", "w"), c.get("once"))
    say("delete", c.delete("once"), c.delete("once"))
    say("delete of a prefix", c.delete_prefix("list/"), c.delete_prefix("list/"))
    fails("put with no key", lambda: c.put("", "x"))
    fails("future revision", lambda: c.get("a", revision=1000000))
    fails("text where a number belongs", lambda: c.get("a", limit="many"))
    fails("unknown field", lambda: c.get("a", flavour="sweet"))
    fails("unknown path", lambda: c.post(c.get_url("/kv/nothing"), json={}))


def transactions(c):
    c.put("t/a", "5")
    a, b = _encode("t/a"), _encode("t/b")
    say("transaction", plain(c.transaction({
        "compare": [{"key": a, "result": "EQUAL", "target": "VALUE", "value": _encode("5")},
                    {"key": b, "result": "LESS", "target": "VERSION", "version": 1}],
        "success": [{"request_put": {"key": b, "value": _encode("6"), "prev_kv": True}}, {"request_range": {"key": b}},
                    {"request_delete_range": {"key": a, "prev_kv": True}}],
        "failure": [{"request_range": {"key": a}}]})))
    say("failed transaction", plain(c.transaction({
        "compare": [{"key": a, "result": "NOT_EQUAL", "target": "MOD", "mod_revision": 0}],
        "success": [],
        "failure": [{"request_txn": {"compare": [], "success": [{"request_range": {"key": b}}]}}]})))
    say("empty transaction", plain(c.transaction({})))
    fails("two puts of a key", lambda: c.transaction({"success": [{"request_put": {"key": a}}, {"request_put": {"key": a}}]}))
    fails("no JSON", lambda: c.post(c.get_url("/kv/txn"), data="{"))


def watches(c):
    before = int(c.transaction({"success": [{"request_put": {"key": _encode("w/0")}}]})["header"]["revision"])
    events, cancel = c.watch_prefix("w/", prev_kv=True)
    time.sleep(0.5)
    # One event after the other: the library reads a stream of JSON in pieces of any size.
    seen = []
    for act in (lambda: c.put("w/1", "new"), lambda: c.put("w/1", "newer"), lambda: c.delete("w/1")):
        act()
        seen.append(plain(next(events)))
    cancel()
    say("watched", seen)
    events, cancel = c.watch("w/1", start_revision=before)
    say("watched from a revision", [plain(next(events)) for _ in range(3)])
    cancel()
    events, cancel = c.watch("w/1", start_revision=before, filters=["NOPUT"])
    say("watched deletes", plain(next(events)))
    cancel()
    threading.Timer(0.5, lambda: new().put("w/later", "x")).start()
    say("watched once", plain(c.watch_once("w/later", timeout=TIMEOUT)))
    threading.Timer(0.5, lambda: new().put("w/sooner", "x")).start()
    say("watched once, prefix", plain(c.watch_prefix_once("w/soon", timeout=TIMEOUT)))
    fails("watched in vain", lambda: c.watch_once("w/never", timeout=0.3))


def leases(c):
    lease = c.lease(60)
    say("lease", name("lease", lease.id))
    say("put", c.put("l/1", "x", lease=lease), c.create("l/2", "x", lease=lease))
    say("its keys", sorted(lease.keys()), 50 < lease.ttl() <= 60, lease.refresh())
    say("key of a lease", plain(c.get("l/1", metadata=True)))
    say("revoked", lease.revoke(), c.get_prefix("l/"), lease.keys(), lease.refresh())
    fails("revoked twice", lease.revoke)
    say("time of a revoked lease", lease.ttl())
    fails("put with an unknown lease", lambda: c.put("a", "1", lease=lease))
    fails("a lease without end", lambda: c.lease(10000000000))
    short = c.lease(1)
    c.put("l/short", "x", lease=short)
    revision = int(c.get("l/short", metadata=True)[0][1]["mod_revision"])
    say("ended", plain(c.watch_once("l/short", start_revision=revision + 1, timeout=TIMEOUT)))
    say("refreshed when ended", short.refresh())


def locks(c):
    lock, other = c.lock("job", ttl=30), c.lock("job", ttl=30)
    say("lock", lock.acquire(), lock.is_acquired(), lock.key)
    say("second lock", other.acquire(), other.is_acquired())
    say("refreshed", lock.refresh())
    say("released", lock.release(), lock.release(), other.acquire(), other.release())
    with c.lock("job", ttl=30) as held:
        say("in a block", held.is_acquired())
    say("after it", held.is_acquired())


def maintenance(c):
    status = c.status()
    say("status", sorted(k for k in status if k not in ("raftAppliedIndex", "dbSizeQuota", "storageVersion", "downgradeInfo")),
        int(status["dbSize"]) > 0, status["version"].count("."))
    listed = sorted(c.members(), key=lambda m: m["name"])
    say("members", [(m["name"], sorted(m), len(m["peerURLs"]), len(m["clientURLs"])) for m in listed])
    for path, body in (
            ("/maintenance/alarm", {"action": "GET"}),
            ("/auth/status", {}), ("/lease/timetolive", {"ID": "77"}), ("/kv/lease/timetolive", {"ID": 77, "keys": True}),
            ("/kv/compaction", {"revision": "3"})):
        fails("post " + path, lambda: c.post(c.get_url(path), json=body))
    fails("defragmented", lambda: c.post(c.get_url("/maintenance/defragment"), json={}) is not None)
    fails("leases", lambda: len(c.post(c.get_url("/lease/leases"), json={})["leases"]))
    fails("hash", lambda: "hash" in c.post(c.get_url("/maintenance/hash"), json={}))
    fails("hash at a revision", lambda: "hash" in c.post(c.get_url("/maintenance/hash"), json={"revision": "5"}))
    fails("compacted revision", lambda: c.get("a", revision=2))


def users(c):
    """Manages users by plain posts, and sends the token as the gateway's documentation shows. The library has neither."""
    post = lambda path, **body: c.post(c.get_url("/auth/" + path), json=body)
    fails("user without users", lambda: post("authenticate", name="root", password="x"))
    for user in ("root", "reader"):
        fails("add user", lambda: post("user/add", name=user, password="secret"))
        fails("add role", lambda: post("role/add", name=user))
        fails("grant role", lambda: post("user/grant", user=user, role=user))
    fails("grant permission", lambda: post("role/grant", name="reader", perm={
        "permType": "READ", "key": _encode("u/"), "range_end": _encode("u0")}))
    fails("get role", lambda: post("role/get", role="reader"))
    fails("list users", lambda: post("user/list"))
    fails("add user again", lambda: post("user/add", name="root", password="secret"))
    c.put("u/1", "x")
    fails("enable", lambda: post("enable"))
    fails("nobody reads", lambda: c.get("u/1"))
    fails("nobody writes", lambda: c.put("u/1", "y"))
    fails("nobody has a lease", lambda: c.lease(60) and "")
    fails("wrong password", lambda: post("authenticate", name="reader", password="guess"))
    c.session.headers["Authorization"] = "nonsense"
    fails("wrong token", lambda: c.get("u/1"))
    del c.session.headers["Authorization"]
    token = {user: post("authenticate", name=user, password="secret")["token"] for user in ("root", "reader")}
    c.session.headers["Authorization"] = token["reader"]
    say("reader reads", c.get("u/1"))
    fails("reader writes", lambda: c.put("u/1", "y"))
    fails("reader reads elsewhere", lambda: c.get("w/0"))
    fails("reader adds a user", lambda: post("user/add", name="other", password="x"))
    revision = int(c.get("u/1", metadata=True)[0][1]["mod_revision"])
    events, cancel = c.watch("u/1", start_revision=revision)
    say("reader watches", plain(next(events)))
    cancel()
    c.session.headers["Authorization"] = token["root"]
    say("root writes", c.put("u/2", "y"))
    fails("status", lambda: post("status"))
    fails("disable", lambda: post("disable"))
    del c.session.headers["Authorization"]
    say("nobody reads again", c.get("u/1"))


def new():
    return Etcd3Client(host=host, port=int(port), timeout=TIMEOUT, api_path="/v3/")


def main():
    c = new()
    for part in (keys, transactions, watches, leases, locks, maintenance, users):
        say("part", part.__name__)
        part(c)
    say("done", "all parts")


main()
