// The pods that wait: who is ahead, since when, why, and what would wake them.
import { button, fill, h, link, name } from "./dom.js";
import { count, duration, iso, number } from "./format.js";
import { address, amend, current } from "./route.js";
import { getJson, store, subscribe } from "./store.js";
import { virtualTable } from "./table.js";

export const title = "Queue";
export const hint = "Pods that have no node yet. Active ones are tried next, from the top; the others wait for the time or the event that is named.";

const PLACES = {
  active: ["Active", "tried next, in this order"],
  backoff: ["Backoff", "tried again when their backoff is over"],
  unschedulable: ["Unschedulable", "no node fits; tried again after an event that could help"],
  gated: ["Gated", "held back by scheduling gates or a PreEnqueue plugin"],
  permit: ["Waiting", "have a node, wait for a Permit plugin"],
  other: ["Other", "another scheduler is to place them"],
};

export function show(main) {
  let place = current().params.get("place") || "", text = current().params.get("q") || "", data = null, stopped = false, timer = 0;
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Where pods wait" });
  const filter = h("input", { type: "search", placeholder: "Filter by name or reason", "aria-label": "Filter by name or reason", value: text, oninput: () => { text = filter.value; amend({ q: text }); apply(); } });
  const summary = h("p", { class: "summary" }), note = h("p", { class: "dim small" });
  const table = virtualTable("Waiting pods", [
    { key: "at", title: "#", width: "3rem", right: true, cell: (row) => row.position },
    { key: "pod", title: "Pod", width: "20%", value: (row) => row.pod, cell: (row) => link(address("decision", { pod: row.pod }), row.pod) },
    { key: "place", title: "Where", width: "8.5rem", value: (row) => row.place, cell: (row) => h("span", { class: `place ${row.place}` }, PLACES[row.place][0]) },
    { key: "priority", title: "Priority", width: "6rem", right: true, value: (row) => row.priority, cell: (row) => number(row.priority) },
    { key: "since", title: "Waiting", width: "6.5rem", right: true, hint: "Time since it entered the queue", value: (row) => -row.since, cell: (row) => h("time", { title: iso(row.since) }, row.since ? duration(Math.max(0, now() - row.since)) : "–") },
    { key: "attempts", title: "Tries", width: "4.5rem", right: true, value: (row) => row.attempts || 0, cell: (row) => row.attempts === null ? "–" : row.attempts },
    { key: "retry", title: "Next try", width: "15%", hint: "When, or the events after which it is tried again", value: (row) => row.retryAt || 0, cell: (row) => row.retryAt && row.retryAt > now() ? `in ${duration(row.retryAt - now())}` : row.place === "active" ? "next" : row.wokenBy.length ? name(row.wokenBy.join(", ")) : "–" },
    { key: "why", title: "Why", value: (row) => row.why, cell: (row) => name(row.why || (row.place === "active" ? "not tried yet" : "–")) },
  ], { empty: "No pod waits. Everything that could be placed has a node." });
  fill(main, h("div", { class: "head" }, h("h2", null, title), summary), chips, h("div", { class: "bar" }, filter, note), table.element);

  function now() { return Number(current().params.get("at")) || Date.now() / 1000; }

  async function load() {
    timer = 0;
    try {
      data = await getJson("api/queue");
      if (stopped) return;
      const position = {};
      for (const row of data.pods) row.position = row.place === "active" || row.place === "backoff" ? (position[row.place] = (position[row.place] || 0) + 1) : "";
      apply();
    } catch (error) { if (!stopped) fill(summary, h("span", { class: "error" }, error.message)); }
  }

  function apply() {
    if (!data) return;
    const total = Object.values(data.counts).reduce((sum, each) => sum + each, 0);
    fill(summary, total ? `${count(total, "pod")} waiting` : "No pod waits");
    fill(chips, Object.entries(PLACES).filter(([key]) => data.counts[key] || !["permit", "other"].includes(key)).map(([key, [label, meaning]]) =>
      button([h("strong", { class: "figures" }, number(data.counts[key] || 0)), " ", label], () => choose(key), { class: `count ${key}`, title: meaning, "aria-pressed": String(place === key) })));
    const low = text.toLowerCase();
    table.set(data.pods.filter((row) => (!place || row.place === place) && (!low || row.pod.toLowerCase().includes(low) || (row.why || "").toLowerCase().includes(low))));
    fill(note, place ? PLACES[place][1] : "", total > data.pods.length ? ` The first ${number(data.pods.length)} are listed.` : "");
  }

  function choose(key) {
    place = place === key ? "" : key;
    amend({ place });
    apply();
  }

  const unsubscribe = subscribe((what) => {
    if (what === "queue" && !timer && !current().params.get("at")) timer = setTimeout(load, 500);
  });
  const clock = setInterval(() => { if (!document.hidden) table.redraw(); }, 1000);
  load();
  return { stop() { stopped = true; unsubscribe(); clearInterval(clock); clearTimeout(timer); table.stop(); }, table: () => table };
}
