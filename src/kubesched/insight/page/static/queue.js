// The pods that wait, by pod group or workload: how long, why, and what has them tried again.
import { button, fill, h, link, name } from "./dom.js";
import { amount, count, duration, iso, number } from "./format.js";
import { sentence } from "./reasons.js";
import { address, amend, current } from "./route.js";
import { getJson, store, subscribe } from "./store.js";

export const title = "Queue";
export const hint = "Pods that have no node yet, one card per pod group or workload. Each says why it waits and what has it tried again.";

const PLACES = {
  active: ["Next", "tried next, in this order"],
  backoff: ["Backoff", "tried again when their backoff is over"],
  unschedulable: ["Unschedulable", "no node fits; tried again after an event that could help"],
  gated: ["Gated", "held back by scheduling gates or a PreEnqueue plugin"],
  incomplete: ["Incomplete", "their PodGroup, or a group above it, does not exist"],
  pending: ["Group is tried", "others of their group are being tried"],
  permit: ["Waiting", "have a node, wait for a Permit plugin"],
  other: ["Other schedulers", "another scheduler is to place them"],
};
const SELDOM = ["incomplete", "pending", "permit", "other"];
const MOST_CARDS = 200, MOST_PODS = 100, MOST_EVENTS = 3;

export function show(main) {
  let place = current().params.get("place") || "", text = current().params.get("q") || "", data = null, stopped = false, timer = 0, ahead = 0;
  const opened = new Set();
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Where pods wait" });
  const filter = h("input", { type: "search", placeholder: "Filter by name or reason", "aria-label": "Filter by name or reason", value: text, oninput: () => { text = filter.value; amend({ q: text }); apply(); } });
  const summary = h("p", { class: "summary" }), note = h("p", { class: "dim small" }), list = h("div", { class: "cards" }, h("p", { class: "loading" }, "Loading…"));
  fill(main, h("div", { class: "head" }, h("h2", null, title), summary), chips, h("div", { class: "bar" }, filter, note), list);

  // The server's time: the browser's clock may be another.
  function now() { return Number(current().params.get("at")) || Date.now() / 1000 + ahead; }
  function since(row) { return h("time", { title: iso(row.since), "data-since": row.since }, row.since ? waited(row.since) : "–"); }
  function waited(from) { return duration(Math.max(0, Math.round(now() - from)) || 0.5).replace("500 ms", "less than 1 s"); }

  async function load() {
    timer = 0;
    try {
      const answer = await getJson("api/queue");
      if (stopped) return;
      data = answer;
      ahead = data.now - Date.now() / 1000;
      data.pods.filter((row) => row.place === "active").forEach((row, at) => { row.position = at + 1; });
      apply();
    } catch (error) { if (!stopped) { fill(list); fill(summary, h("span", { class: "error" }, error.message)); } }
  }

  // Pods of one group, which are tried together, or of one workload that wait in the same place for the same reason.
  function grouped(rows) {
    const groups = new Map();
    for (const row of rows) {
      const namespace = row.pod.split("/")[0];
      const key = row.group ? [`${namespace}/${row.group}`, row.place].join("\n") : [row.workload ? `${namespace}/${row.workload}` : row.pod, row.place, row.why].join("\n");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    return [...groups.entries()];
  }

  function apply() {
    if (!data) return;
    const total = Object.values(data.counts).reduce((sum, each) => sum + each, 0), ours = total - (data.counts.other || 0);
    fill(summary, total ? [`${count(ours, "pod")} waiting`, data.counts.other ? `, ${number(data.counts.other)} of other schedulers` : ""] : "No pod waits");
    fill(chips, Object.entries(PLACES).filter(([key]) => data.counts[key] || !SELDOM.includes(key)).map(([key, [label, meaning]]) =>
      button([h("strong", { class: "figures" }, number(data.counts[key] || 0)), " ", label], () => choose(key), { class: `count ${key}`, title: meaning, "aria-pressed": String(place === key) })));
    const low = text.toLowerCase();
    const groups = grouped(data.pods.filter((row) => (!place || row.place === place) && (!low || `${row.pod} ${row.group} ${row.workload} ${row.why}`.toLowerCase().includes(low))));
    const others = groups.filter(([, rows]) => rows[0].place === "other");
    fill(note, place ? PLACES[place][1] : "", data.pods.length < total ? ` The first ${number(data.pods.length)} pods are listed.` : "");
    fill(list,
      groups.filter(([, rows]) => rows[0].place !== "other").slice(0, MOST_CARDS).map(card),
      others.length > 0 && [h("h3", null, "Of other schedulers"), h("p", { class: "dim" }, "This scheduler leaves them alone."), others.slice(0, MOST_CARDS).map(card)],
      groups.length > MOST_CARDS && h("p", { class: "dim" }, `And more: filter by name to see them.`),
      !groups.length && h("p", { class: "empty" }, total ? "No pod that waits is like that." : "No pod waits. Everything that could be placed has a node."));
  }

  function card([key, rows]) {
    const first = rows[0], [namespace, podName] = first.pod.split("/"), one = rows.length === 1;
    const oldest = rows.reduce((least, row) => (row.since && row.since < least.since ? row : least), first);
    const tries = rows.map((row) => row.attempts).filter((each) => each !== null), most = Math.max(...tries), least = Math.min(...tries);
    const alike = rows.every((row) => row.cpu === first.cpu && row.memory === first.memory);
    const wants = alike ? [first.cpu && amount("cpu", first.cpu), first.memory && amount("memory", first.memory)].filter(Boolean).join(", ") : "";
    const [kind, workload] = first.group || first.workload ? (first.group || first.workload).split("/") : ["Pod", podName];
    return h("article", { class: `card ${first.place}` },
      h("h3", null, h("span", { class: `place ${first.place}` }, PLACES[first.place][0]), " ", h("span", { class: "dim" }, kind, " ", namespace, " / "), one ? link(address("decision", { pod: first.pod }), workload) : name(workload), !one && h("span", { class: "many" }, ` ${count(rows.length, "pod")}`)),
      h("p", { class: "why" }, why(first)),
      h("p", { class: "dim" }, one ? "Waiting " : "Waiting up to ", since(oldest), wants ? `. Wants ${wants}${one ? "" : " each"}` : "", first.priority ? `. Priority ${number(first.priority)}` : "", tries.length && most ? `. Tried ${most === 1 ? "once" : `${most === least ? number(most) : `${number(least)} to ${number(most)}`} times`}` : "", ". ", h("span", { class: "next" }, next(first))),
      first.nominated && h("p", { class: "dim" }, "Room is being made on ", link(address("map", { node: first.nominated }), first.nominated), "."),
      h("p", { class: "bar" }, link(address("decision", { pod: first.pod }), one ? "Why, and what would help" : "Why, and what would help (first pod)"),
        !one && h("details", { open: opened.has(key), ontoggle: (event) => { if (event.target.open) opened.add(key); else opened.delete(key); } }, h("summary", null, `All ${count(rows.length, "pod")}`),
          h("ul", { class: "plain" }, rows.slice(0, MOST_PODS).map((row) => h("li", null, link(address("decision", { pod: row.pod }), row.pod), h("span", { class: "dim" }, " waiting ", since(row)))), rows.length > MOST_PODS && h("li", { class: "dim" }, `and ${number(rows.length - MOST_PODS)} more`)))));
  }

  function why(row) {
    if (row.place === "other") return `${row.why[0].toUpperCase()}${row.why.slice(1)}.`;
    if (row.place === "permit") return `It has a node and waits ${row.why}.`;
    return row.why ? name(`${sentence(row.why)}.`.replace(/\.\.$/, "."), { title: row.why }) : "Not tried yet.";
  }

  function next(row) {
    if (row.place === "active") return row.position === 1 ? "Tried next." : `Number ${number(row.position)} to be tried.`;
    if (row.retryAt && row.retryAt > now()) return ["Tried again in ", h("time", { "data-until": row.retryAt }, duration(Math.ceil(row.retryAt - now()))), "."];
    if (row.place === "backoff") return "Tried again shortly.";
    if (row.place === "incomplete") return "Tried when the group is there.";
    if (row.place === "pending") return "Tried after them.";
    if (row.place === "gated") return row.why.startsWith("scheduling gates") ? "Tried when its gates are removed." : "Tried when the plugin lets it in.";
    if (!row.wokenBy.length) return "";
    const shown = row.wokenBy.slice(0, MOST_EVENTS).join(", "), more = row.wokenBy.length - MOST_EVENTS;
    return h("span", { title: row.wokenBy.join(", ") }, `Tried again when ${shown}${more > 0 ? `, or on ${count(more, "other event")}` : ""}.`);
  }

  function choose(key) {
    place = place === key ? "" : key;
    amend({ place });
    apply();
  }

  // Times go on between answers.
  function tick() {
    for (const each of list.querySelectorAll("time[data-since]")) if (Number(each.dataset.since)) each.textContent = waited(each.dataset.since);
    for (const each of list.querySelectorAll("time[data-until]")) each.textContent = duration(Math.max(0, Math.ceil(each.dataset.until - now())));
  }

  const unsubscribe = subscribe((what) => {
    if (what === "queue" && !timer && !current().params.get("at")) timer = setTimeout(load, 500);
  });
  const clock = setInterval(() => { if (!document.hidden) tick(); }, 1000);
  // Of pods of other schedulers the stream tells nothing.
  const poll = setInterval(() => { if (!document.hidden && store.connection === "live" && !timer && !current().params.get("at")) load(); }, 6000);
  load();
  return { stop() { stopped = true; unsubscribe(); clearInterval(clock); clearInterval(poll); clearTimeout(timer); }, table: () => null };
}
