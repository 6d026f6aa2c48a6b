// Uses what the package etcd3 offers, against a fresh cluster, and prints a line for each answer.
//
//     node features.js ENDPOINT
"use strict";
const { Etcd3 } = require("etcd3");

const host = process.argv[2];
const client = new Etcd3({ hosts: host });
const names = new Map();

// name returns a name for an id, which differs from run to run.
function name(kind, id) {
  const key = kind + id;
  if (!names.has(key)) names.set(key, `${kind} ${[...names.keys()].filter((k) => k.startsWith(kind)).length + 1}`);
  return names.get(key);
}

const say = (what, ...values) => console.log(`${what}:`, ...values.map((v) => (typeof v === "string" ? v : JSON.stringify(v))));

async function fails(what, call) {
  try {
    say(what, "no error", await call());
  } catch (error) {
    say(what, error.constructor.name, error.message.replace(/Lease \d+/, "Lease ID"));
  }
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, (...values) => resolve(values)));
const entry = (kv) => `${kv.key}=${kv.value} created ${kv.create_revision} changed ${kv.mod_revision} version ${kv.version}`;

async function keys() {
  say("get of no key", await client.get("absent"));
  say("exists of no key", await client.get("absent").exists());
  say("put", (await client.put("a").value("1")).header.revision);
  say("put returns the former value", entry(await client.put("a").value("2").getPrevious()));
  say("get", entry((await client.get("a").exec()).kvs[0]));
  say("number", await client.get("a").number());
  say("serializable get", await client.get("a").serializable(true).string());
  say("get at a revision", await client.get("a").revision(2).string());
  await fails("get at a future revision", () => client.get("a").revision(1000).string());
  await client.put("j").value(JSON.stringify({ x: [1] }));
  say("json", await client.get("j").json());
  await client.put("a").touch();
  for (let i = 0; i < 5; i++) await client.put(`p/${i}`).value(i);
  say("prefix", await client.getAll().prefix("p/").numbers());
  say("limit and order", await client.getAll().prefix("p/").limit(2).sort("Key", "Descend").keys());
  say("range", await client.getAll().inRange({ start: "p/1", end: "p/3" }).strings());
  say("count", await client.getAll().prefix("p/").count());
  say("changed after", await client.getAll().prefix("p/").minModRevision(8).keys());
  say("delete", (await client.delete().key("p/0")).deleted);
  say("delete returns the former values", (await client.delete().inRange({ start: "p/1", end: "p/3" }).getPrevious()).map(entry));
  say("delete of a prefix", (await client.delete().prefix("p/")).deleted);
  await fails("a key without a name", () => client.put("").value("x"));
}

async function transactions() {
  const met = await client.if("a", "Value", "==", "2").and("absent", "Create", "==", 0)
    .then(client.put("t").value("then"), client.get("a")).else(client.get("j")).commit();
  say("transaction", met.succeeded, met.responses.length, entry(met.responses[1].response_range.kvs[0]));
  const unmet = await client.if("a", "Version", ">", 100).then(client.delete().key("t")).else(client.get("t")).commit();
  say("other branch", unmet.succeeded, entry(unmet.responses[0].response_range.kvs[0]));
  await fails("one key twice", () => client.if("a", "Version", ">", 0).then(client.put("t").value("1"), client.put("t").value("2")).commit());
  const sum = (tx) => Promise.all([tx.get("x").number(), tx.get("y").number()]).then(([x, y]) => tx.put("sum").value(x + y));
  await client.put("x").value(2);
  await client.put("y").value(3);
  for (const isolation of [0, 1, 2, 3]) {
    await client.stm({ isolation, retries: 5 }).transact(sum);
    say(`software transaction ${isolation}`, await client.get("sum").number());
  }
  let tries = 0;
  await client.stm({ isolation: 0, retries: 5 }).transact(async (tx) => {
    const x = await tx.get("x").number();
    if (++tries === 1) await client.put("x").value(10);
    await tx.put("sum").value(x);
  });
  say("a software transaction that meets another write", tries, await client.get("sum").number());
}

async function leases() {
  const lease = client.lease(60, { autoKeepAlive: false });
  const id = await lease.grant();
  say("put with a lease", name("lease", (await lease.put("l").value("1"), (await client.get("l").exec()).kvs[0].lease)));
  say("keep alive once", (await lease.keepaliveOnce()).TTL, name("lease", id));
  const left = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  say("time to live", left.grantedTTL, left.keys.map(String));
  say("leases", (await client.leaseClient.leaseLeases()).leases.map((l) => name("lease", l.ID)));
  await lease.revoke();
  say("key after the lease", await client.get("l"));
  const gone = client.lease(60, { autoKeepAlive: false });
  await gone.grant();
  await client.leaseClient.leaseRevoke({ ID: await gone.grant() });
  await fails("keep alive of no lease", () => gone.keepaliveOnce().then((r) => r.TTL));
  await fails("put with no lease", () => client.put("l").value("1").lease(12345));
  const kept = client.lease(1);
  await kept.put("kept").value("1");
  await once(kept, "keepaliveSucceeded");
  await new Promise((resolve) => setTimeout(resolve, 2500));
  say("key of a lease that is kept", await client.get("kept"));
  kept.release();
}

async function watches() {
  const watcher = await client.watch().prefix("w/").withPreviousKV().create();
  const put = once(watcher, "put");
  await client.put("w/1").value("a");
  say("watched put", entry((await put)[0]));
  const second = once(watcher, "put");
  await client.put("w/1").value("b");
  const [now, before] = await second;
  say("watched put over another", entry(now), entry(before));
  const deleted = once(watcher, "delete");
  await client.delete().key("w/1");
  say("watched delete", String((await deleted)[0].key));
  await watcher.cancel();
  const past = await client.watch().key("w/1").startRevision(now.mod_revision).only("put").create();
  say("watched from the past", entry((await once(past, "put"))[0]));
  await past.cancel();
  await client.kv.compact({ revision: now.mod_revision, physical: true });
  const compacted = client.watch().key("w/1").startRevision("1").watcher();
  say("watched from before the compaction", (await once(compacted, "error"))[0].message);
  await fails("get before the compaction", () => client.get("a").revision(2).string());
}

async function locks() {
  const lock = client.lock("job").ttl(60);
  await lock.acquire();
  say("lock", (await lock.leaseId()) !== null);
  await fails("a second lock", () => client.lock("job").acquire());
  await lock.release();
  say("after its release", await client.lock("job").do(() => "ran"));
  const election = client.election("leader", 60);
  const first = await election.campaign("one").wait();
  say("leader", await election.leader());
  const observer = await election.observe();
  const next = client.election("leader", 60).campaign("two");
  const elected = once(next, "elected");
  await first.proclaim("one again");
  while (observer.leader() !== "one again") await once(observer, "change");
  say("observed", observer.leader());
  await first.resign();
  await elected;
  say("leader after the first has resigned", await election.leader());
  await observer.cancel();
  await next.resign();
  await fails("no leader", () => election.leader());
}

async function namespaces() {
  const inside = client.namespace("tenant/");
  await inside.put("k").value("v");
  say("namespace", await inside.getAll().keys(), await client.getAll().prefix("tenant/").keys());
  const lease = inside.lease(60, { autoKeepAlive: false });
  await lease.put("leased").value("1");
  say("lease in a namespace", await client.get("tenant/leased"));
  await lease.revoke();
}

async function cluster() {
  const { members } = await client.cluster.memberList({});
  say("members", members.length, members.map((m) => m.name).sort().join());
  const status = await client.maintenance.status();
  say("status", status.leader !== "0", Number(status.raftTerm) > 0);
  say("alarms", (await client.maintenance.alarm({ action: "Get" })).alarms);
  say("defragment", Object.keys(await client.maintenance.defragment()).join());
}

async function users() {
  const root = await client.user("root").create("secret");
  await client.role("root").create().catch(() => {});
  await root.addRole("root");
  const role = await client.role("half").create();
  await role.grant({ permission: "Readwrite", range: client.range({ prefix: "half/" }) });
  const alice = await client.user("alice").create("a");
  await alice.addRole(role);
  say("roles of alice", (await alice.roles()).map((r) => r.name));
  say("permissions", (await role.permissions()).map((p) => [p.permission, String(p.range.start), String(p.range.end)]));
  await fails("the same user again", () => client.user("alice").create("b"));
  await client.auth.authEnable();
  const as = (username, password) => new Etcd3({ hosts: host, auth: { username, password } });
  const hers = as("alice", "a");
  say("alice writes", (await hers.put("half/1").value("x"), await hers.get("half/1")));
  await fails("alice writes elsewhere", () => hers.put("other").value("x"));
  await fails("nobody", () => client.get("half/1").string());
  const wrong = as("alice", "wrong");
  await fails("a wrong password", () => wrong.get("half/1").string());
  const lease = hers.lease(60);
  await lease.put("half/2").value("leased");
  say("alice's lease", await hers.get("half/2"));
  await lease.revoke();
  const admin = as("root", "secret");
  say("users", (await admin.getUsers()).map((u) => u.name).sort(), (await admin.getRoles()).map((r) => r.name).sort());
  await admin.user("alice").setPassword("b");
  const later = as("alice", "b");
  say("with another password", await later.get("half/1"));
  await admin.auth.authDisable();
  say("without users", await client.get("half/1"));
  for (const c of [hers, wrong, admin, later]) c.close();
}

(async () => {
  for (const part of [keys, transactions, leases, watches, locks, namespaces, cluster, users]) {
    say("part", part.name);
    await part();
  }
  client.close();
  console.log("done: all parts");
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
