// Works without a pause while the test breaks the cluster, and prints what was lost.
//
//     node faults.js ENDPOINT,ENDPOINT,...
//
// Each line on standard input orders something: "progress" prints "progress" once every worker has done more since, and
// "end" prints the results and ends. The library moves to another endpoint after an error. An attempt without an answer may
// have taken effect, so each worker finds out what is there before it goes on.
"use strict";
const readline = require("readline");
const { Etcd3, isRecoverableError } = require("etcd3");

const PAUSE = 20; // milliseconds
const TTL = 20; // seconds
const PATIENCE = 5000; // milliseconds for one call
let ending = false; // for all but the holder
let retries = 0;

const connect = () => new Etcd3({ hosts: process.argv[2].split(","), defaultCallOptions: (c) => (c.isStream ? {} : { deadline: Date.now() + PATIENCE }) });
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const client = connect();
const key = (n) => "written/" + String(n).padStart(6, "0");

// transient reports whether an error is one of a broken connection or a busy cluster.
function transient(error) {
  return isRecoverableError(error) || ["GRPCUnavailableError", "GRPCDeadlineExceededError", "GRPCCancelledError", "BrokenCircuitError"].includes(error.constructor.name);
}

// until repeats a call that only reads, or that may be repeated, until it is answered.
async function until(call) {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!transient(error)) throw error;
      retries++;
      await rest(100);
    }
  }
}

class Worker {
  constructor() {
    this.steps = 0;
    this.failure = null;
  }
  ended() {
    return ending;
  }
  start() {
    this.done = this.run().catch((error) => (this.failure = error));
  }
  async run() {
    while (!this.ended()) {
      try {
        await this.step();
        this.steps++;
        await rest(PAUSE);
      } catch (error) {
        if (!transient(error)) throw error;
        retries++;
        await rest(100);
      }
    }
  }
}

// Writer puts one key after the other. Each acknowledged one must be there at the end.
class Writer extends Worker {
  acknowledged = 0;
  async step() {
    await client.put(key(this.acknowledged + 1)).value(this.acknowledged + 1);
    this.acknowledged++;
  }
  async results() {
    const there = await until(() => client.getAll().prefix("written/").strings());
    const missing = [];
    for (let n = 1; n <= this.acknowledged; n++) if (there[key(n)] !== String(n)) missing.push(n);
    return [["acknowledged writes that are missing", `[${missing}]`]];
  }
}

// Counter counts up by a transaction. Only an attempt without an answer may count without being acknowledged.
class Counter extends Worker {
  acknowledged = 0;
  unknown = 0;
  async step() {
    const value = await client.get("counter");
    const condition = value === null ? client.if("counter", "Create", "==", 0) : client.if("counter", "Value", "==", value);
    try {
      const { succeeded } = await condition.then(client.put("counter").value(Number(value) + 1)).commit();
      if (succeeded) this.acknowledged++;
    } catch (error) {
      this.unknown++;
      throw error;
    }
  }
  async results() {
    const value = await until(() => client.get("counter").number());
    return [["the counter counts each acknowledged step once", this.acknowledged <= value && value <= this.acknowledged + this.unknown]];
  }
}

// Holder keeps a lease alive, by the library's own timer. Its key must never go. It ends when all others have.
class Holder extends Worker {
  stopped = false;
  ended() {
    return this.stopped;
  }
  async run() {
    this.lease = client.lease(TTL);
    this.lease.on("lost", (error) => (this.failure = error));
    await this.lease.put("held").value("yes");
    this.created = (await until(() => client.get("held").exec())).kvs[0].create_revision;
    await super.run();
  }
  async step() {
    const { kvs } = await client.get("held").exec();
    if (kvs.length === 0 || kvs[0].create_revision !== this.created) throw new Error("the key of the lease was gone");
    if (this.failure) throw this.failure;
    await rest(200);
  }
  async results() {
    const { kvs } = await until(() => client.get("held").exec());
    return [["the key of the lease is there", kvs.length === 1 && kvs[0].create_revision === this.created]];
  }
}

// Watcher watches what the writer puts; the library begins again where it was. It must see each key once and in order.
class Watcher extends Worker {
  seen = [];
  wrong = [];
  latest = 0;
  constructor(writer) {
    super();
    this.writer = writer;
  }
  async run() {
    const watcher = await client.watch().prefix("written/").startRevision("1").create();
    watcher.on("put", (kv) => {
      const revision = Number(kv.mod_revision);
      if (revision <= this.latest) this.wrong.push(String(kv.key));
      this.latest = revision;
      if (this.seen.at(-1) !== String(kv.key)) this.seen.push(String(kv.key)); // a put that was repeated has two events
      this.steps++;
    });
    const failed = new Promise((_, reject) => watcher.on("error", reject));
    const caughtUp = (async () => {
      while (!ending || this.seen.length < this.writer.acknowledged) await rest(50);
    })();
    await Promise.race([failed, caughtUp]);
    await watcher.cancel();
  }
  async results() {
    const whole = this.seen.every((k, i) => k === key(i + 1)) && this.seen.length >= this.writer.acknowledged;
    return [["events out of order", `[${this.wrong}]`], ["the watcher saw each write in order", whole]];
  }
}

// Locker takes a lock in turns with another one. Never do both have it. Each has a connection of its own.
class Locker extends Worker {
  static holders = 0;
  static entered = 0;
  client = connect();
  async step() {
    const lock = this.client.lock("job").ttl(TTL);
    try {
      await lock.acquire();
    } catch (error) {
      if (error.constructor.name === "EtcdLockFailedError") return;
      throw error;
    }
    const began = Date.now();
    if (++Locker.holders > 1) throw new Error("two workers have the lock");
    Locker.entered++;
    await rest(50);
    Locker.holders--;
    if (Date.now() - began > (TTL / 3) * 1000) throw new Error("the machine is too slow for this test: a lock was held for too long");
    await until(() => lock.release());
  }
  async results() {
    return [["the lock was taken", Locker.entered > 0]];
  }
}

const inWords = (result) => (result === true ? "True" : result === false ? "False" : result);

async function progress(workers) {
  const before = workers.map((w) => w.steps);
  while (!workers.every((w, i) => w.steps > before[i] + 2)) {
    for (const w of workers) {
      if (w.failure) {
        console.log(`failed: ${w.constructor.name}: ${w.failure.stack}`);
        process.exit(1);
      }
    }
    await rest(50);
  }
  console.log("progress:", ...workers.map((w) => `${w.constructor.name} ${w.steps}`), "retries", retries);
}

(async () => {
  const writer = new Writer();
  const workers = [writer, new Counter(), new Holder(), new Watcher(writer), new Locker(), new Locker()];
  for (const w of workers) w.start();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === "end") break;
    await progress(workers);
  }
  ending = true;
  for (const w of workers) {
    if (w instanceof Holder) continue;
    await w.done;
  }
  const holder = workers.find((w) => w instanceof Holder);
  holder.stopped = true;
  await holder.done;
  for (const w of workers) {
    if (w.failure) console.log(`failed: ${w.constructor.name}: ${w.failure.stack}`);
    for (const [what, result] of await w.results()) console.log(`${what}: ${inWords(result)}`);
  }
  console.log("done: all parts");
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
