// Keeps an open page up to date. The server sends the cells that changed; this script puts each into its place, and lets
// the remaining time of leases run down in between. Without it the pages work, but stand still.
"use strict";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const leases = new Map(); // element -> {end, whole, motion}; end in ms of performance.now()
let retry = 0;

const places = new Map();
for (const e of document.querySelectorAll("[data-k]")) places.set(e.dataset.k, e);

const inWords = (ms) => {
  const s = Math.ceil(ms / 1000);
  if (s < 120) return s + " s";
  if (s < 120 * 60) return Math.floor(s / 60) + " min";
  if (s < 48 * 3600) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
};

const write = (e, text) => {
  if (e.textContent !== text) e.textContent = text;
};

// run makes the bar of a lease run down from left to nothing.
const run = (e, bar) => {
  const known = leases.get(e);
  const end = performance.now() + bar.left;
  if (known && known.whole === bar.whole && Math.abs(known.end - end) < 150) return;
  if (known && known.motion) known.motion.cancel();
  const lease = { end, whole: bar.whole, motion: null };
  leases.set(e, lease);
  const rect = e.querySelector("rect");
  const part = bar.whole > 0 ? Math.min(1, bar.left / bar.whole) : 0;
  e.querySelector("svg").classList.remove("none");
  if (calm.matches) {
    draw(e, lease);
  } else {
    rect.setAttribute("width", "100");
    lease.motion = rect.animate([{ transform: `scaleX(${part})` }, { transform: "scaleX(0)" }], { duration: Math.max(1, bar.left), fill: "forwards" });
  }
  tick(e, lease);
};

const stop = (e) => {
  const known = leases.get(e);
  if (!known) return;
  if (known.motion) known.motion.cancel();
  leases.delete(e);
};

const draw = (e, lease) => {
  const part = lease.whole > 0 ? Math.max(0, Math.min(1, (lease.end - performance.now()) / lease.whole)) : 0;
  e.querySelector("rect").setAttribute("width", String(Math.round(part * 1000) / 10));
};

// tick writes the remaining time in words.
const tick = (e, lease) => {
  const left = Math.max(0, lease.end - performance.now());
  write(e.querySelector("span"), left > 0 ? inWords(left) : "ending");
  e.querySelector("svg").classList.toggle("low", left < lease.whole / 4);
  if (!lease.motion) draw(e, lease);
};

setInterval(() => {
  if (!document.hidden) for (const [e, lease] of leases) tick(e, lease);
}, 200);

// put shows a cell in its place.
const put = (e, cell) => {
  if (e.classList.contains("lease")) {
    const text = e.querySelector("span");
    text.className = cell.c || "";
    if (cell.b && cell.b.left > 0) {
      run(e, cell.b);
      return;
    }
    stop(e);
    write(text, cell.t);
    e.querySelector("svg").classList.toggle("none", !cell.b);
    e.querySelector("rect").setAttribute("width", "0");
    return;
  }
  if (e.tagName === "path") {
    e.setAttribute("d", cell.d || "M0 0");
    return;
  }
  write(e, cell.t);
  e.className = cell.c || "";
  if (e.tagName === "A") {
    if (cell.h) e.setAttribute("href", cell.h);
    else e.removeAttribute("href");
  }
  if (cell.t.length > 24) e.title = cell.t;
  else e.removeAttribute("title");
};

const lamp = document.querySelector("[data-lamp]");
const word = document.querySelector("[data-live]");
const show = (state, text) => {
  lamp.className = "lamp " + state;
  write(word, text);
};

const listen = () => {
  const updates = document.body.dataset.updates;
  if (!updates) return;
  const source = new EventSource(updates);
  source.onmessage = (event) => {
    retry = 0;
    show("on", "Live");
    const cells = JSON.parse(event.data);
    for (const key in cells) {
      const e = places.get(key);
      if (e) put(e, cells[key]);
    }
  };
  source.onerror = () => {
    show("off", "Not live");
    if (source.readyState !== EventSource.CLOSED) return;
    retry = Math.min(retry + 1, 6);
    setTimeout(listen, 2500 * 2 ** retry); // refused, for example because too many pages are open
  };
  addEventListener("pagehide", () => source.close(), { once: true });
};

for (const e of document.querySelectorAll(".lease[data-left]")) {
  run(e, { left: Number(e.dataset.left), whole: Number(e.dataset.whole) });
}
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}
listen();
