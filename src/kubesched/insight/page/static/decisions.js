// Attempts over time, with a scrubber that takes the other views back to a moment of the recording.
import { button, canvasBox, css, debounced, fill, h, hideTip, link, name, select, showTip } from "./dom.js";
import { count, duration, iso, number, time } from "./format.js";
import { address, amend, current, go } from "./route.js";
import { loadDecisions, store, subscribe } from "./store.js";
import { virtualTable } from "./table.js";

export const title = "Decisions";
export const hint = "Each attempt to place a pod, newest first. Bars show how many there were when; choose one to see why it ended that way.";

const OUTCOMES = { scheduled: "--good", unschedulable: "--warn", error: "--bad" };

export function show(main) {
  const { params } = current();
  const wanted = { q: params.get("q") || "", outcome: params.get("outcome") || "", plugin: params.get("plugin") || "", from: Number(params.get("from")) || 0, to: Number(params.get("to")) || 0 };
  const summary = h("p", { class: "summary" }), bar = h("div", { class: "bar" }), scrub = h("div", { class: "scrub" });
  let shown = [], stopped = false, span = [0, 0];
  const table = virtualTable("Decisions", [
    { key: "number", title: "#", width: "5.5rem", right: true, value: (row) => row.number, cell: (row) => row.number || "–" },
    { key: "time", title: "Time", width: "9rem", value: (row) => row.time, cell: (row) => h("time", { title: iso(row.time) }, time(row.time)) },
    { key: "pod", title: "Pod", width: "26%", value: (row) => row.pod, cell: (row) => link(whereOf(row), row.pod) },
    { key: "outcome", title: "Outcome", width: "9rem", value: (row) => row.outcome, cell: (row) => h("span", { class: `outcome ${row.outcome}` }, row.outcome) },
    { key: "node", title: "Node", width: "16%", value: (row) => row.node, cell: (row) => row.node ? link(address("map", { node: row.node }), row.node) : "–" },
    { key: "seconds", title: "Took", width: "6rem", right: true, value: (row) => row.seconds || 0, cell: (row) => duration(row.seconds) },
    { key: "attempt", title: "Try", width: "4rem", right: true, value: (row) => row.attempt || 0, cell: (row) => row.attempt || "–" },
    { key: "why", title: "Why not", value: (row) => row.message, cell: (row) => name(row.message || (row.outcome === "scheduled" ? "–" : row.plugins.join(", ") || "open it to see")) },
  ], { onopen: (row) => { location.hash = whereOf(row); }, empty: "No decision yet. It appears here as soon as a pod is tried." });
  const timeline = canvasBox("Timeline of decisions", draw);
  timeline.box.classList.add("timeline");
  fill(main, h("div", { class: "head" }, h("h2", null, title), summary), timeline.box, scrub, bar, table.element);

  function whereOf(row) {
    const attempt = store.meta.span && row.number ? row.number : "";
    return address("decision", { pod: row.pod, attempt, number: row.number || "", at: attempt ? "" : undefined });
  }

  function apply() {
    if (!store.decisions || stopped) return;
    const low = wanted.q.toLowerCase();
    shown = store.decisions.filter((row) =>
      (!wanted.outcome || row.outcome === wanted.outcome) &&
      (!wanted.plugin || row.plugins.includes(wanted.plugin)) &&
      (!low || row.pod.toLowerCase().includes(low) || row.node.toLowerCase().includes(low)));
    const all = shown;
    span = all.length ? [all[0].time, Math.max(all[all.length - 1].time, all[0].time + 1)] : [0, 1];
    const at = Number(current().params.get("at"));
    const listed = at ? shown.filter((row) => row.time <= at) : shown;
    table.set([...listed].reverse());
    const failed = shown.filter((row) => row.outcome !== "scheduled").length;
    fill(summary, `${count(shown.length, "decision")}${failed ? `, ${number(failed)} of them without a node` : ""}`);
    drawBar();
    drawScrub();
    timeline.redraw();
  }

  let bins = [];
  function draw(context, width, height) {
    context.clearRect(0, 0, width, height);
    const pad = 8, base = height - 20, room = base - 8;
    const n = Math.max(10, Math.min(240, Math.floor((width - 2 * pad) / 6)));
    bins = Array.from({ length: n }, () => ({ scheduled: 0, unschedulable: 0, error: 0, total: 0 }));
    for (const row of shown) {
      const bin = bins[Math.min(n - 1, Math.floor((row.time - span[0]) / (span[1] - span[0]) * n))];
      bin[row.outcome] = (bin[row.outcome] || 0) + 1;
      bin.total++;
    }
    const most = Math.max(1, ...bins.map((bin) => bin.total)), step = (width - 2 * pad) / n;
    bins.forEach((bin, i) => {
      let y = base;
      for (const [outcome, colour] of Object.entries(OUTCOMES)) {
        const tall = bin[outcome] / most * room;
        if (!bin[outcome]) continue;
        context.fillStyle = css(colour);
        context.fillRect(pad + i * step, y - Math.max(1, tall), Math.max(1, step - 1), Math.max(1, tall));
        y -= Math.max(1, tall);
      }
    });
    context.fillStyle = css("--line");
    context.fillRect(pad, base, width - 2 * pad, 1);
    context.fillStyle = css("--dim");
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "left";
    if (shown.length) {
      context.fillText(time(span[0]), pad, height - 5);
      context.textAlign = "right";
      context.fillText(time(span[1]), width - pad, height - 5);
      context.textAlign = "left";
    }
    const at = Number(current().params.get("at"));
    if (at) {
      const x = pad + (at - span[0]) / (span[1] - span[0]) * (width - 2 * pad);
      context.fillStyle = css("--accent");
      context.fillRect(x - 1, 0, 2, base);
    }
  }

  timeline.canvas.addEventListener("pointermove", (event) => {
    const i = Math.floor((event.offsetX - 8) / (timeline.box.clientWidth - 16) * bins.length), bin = bins[i];
    if (!bin || !bin.total) { hideTip(); return; }
    showTip(event.clientX, event.clientY, time(span[0] + (i + 0.5) / bins.length * (span[1] - span[0])), Object.keys(OUTCOMES).filter((each) => bin[each]).map((each) => [h("br"), `${number(bin[each])} ${each}`]));
  });
  timeline.canvas.addEventListener("pointerleave", hideTip);
  timeline.canvas.addEventListener("click", (event) => {
    if (!store.meta.span) return;
    const share = (event.offsetX - 8) / (timeline.box.clientWidth - 16);
    travel(span[0] + Math.max(0, Math.min(1, share)) * (span[1] - span[0]));
  });

  function travel(at) {
    amend({ at: at ? at.toFixed(3) : "" });
    dispatchEvent(new Event("moment"));
    apply();
  }

  const travelSoon = debounced(travel, 120);

  let range = null;
  const aside = h("span", { class: "bar" });
  function drawScrub() {
    if (!store.meta.span || !shown.length) { range = null; fill(scrub); return; }
    const at = Number(current().params.get("at"));
    if (!range) {
      range = h("input", { type: "range", min: 0, max: 1000, "aria-label": "Moment to look at", oninput: () => travelSoon(range.value >= 1000 ? 0 : span[0] + range.value / 1000 * (span[1] - span[0])) });
      fill(scrub, h("label", { class: "field grow" }, h("span", null, "Look at"), range), aside);
    }
    if (document.activeElement !== range) range.value = at ? Math.round((at - span[0]) / (span[1] - span[0]) * 1000) : 1000;
    fill(aside, at ? [link(address("map"), "Map then"), link(address("queue"), "Queue then")] : h("span", { class: "dim small" }, "Move it to see the cluster as it was."));
  }

  let plugins = "";
  function drawBar() {
    const known = [...new Set(store.decisions.flatMap((row) => row.plugins))].sort();
    const key = known.join();
    if (plugins === key && bar.childElementCount) return;
    plugins = key;
    const filter = h("input", { type: "search", placeholder: "Filter by pod or node", "aria-label": "Filter by pod or node", value: wanted.q, oninput: () => change({ q: filter.value }) });
    fill(bar, filter,
      select("Outcome", [["", "all"], ...Object.keys(OUTCOMES).map((each) => [each, each])], wanted.outcome, (outcome) => change({ outcome })),
      known.length > 0 && select("Rejected by", [["", "any plugin"], ...known.map((each) => [each, each])], wanted.plugin, (plugin) => change({ plugin })),
      h("span", { class: "legend" }, Object.entries(OUTCOMES).map(([outcome, colour]) => h("span", { class: "key" }, h("i", { style: { background: `var(${colour})` } }), outcome))));
  }

  function change(changes) {
    Object.assign(wanted, changes);
    amend(changes);
    apply();
  }

  let timer = 0;
  const unsubscribe = subscribe((what) => {
    if (what === "theme") timeline.redraw();
    if (what === "decisions" && !timer) timer = setTimeout(() => { timer = 0; apply(); }, 250);
  });
  (async () => {
    try {
      if (!store.decisions) await loadDecisions();
      apply();
    } catch (error) { fill(summary, h("span", { class: "error" }, error.message)); }
  })();
  return { stop() { stopped = true; unsubscribe(); clearTimeout(timer); table.stop(); timeline.stop(); hideTip(); }, table: () => table };
}
