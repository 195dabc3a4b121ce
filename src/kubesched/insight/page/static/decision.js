// One decision: the verdict in a sentence, the reasons, every node against every plugin, and what would help.
import { button, canvasBox, css, fill, h, hideTip, link, name, showTip } from "./dom.js";
import { texts } from "./columns.js";
import { count, iso, number, percent, time } from "./format.js";
import { address, amend, current } from "./route.js";
import { COLOURS, ink, legend, STEPS, pixel, step } from "./scale.js";
import { inWords } from "./reasons.js";
import { getColumns, loadDecisions, post, store, subscribe } from "./store.js";
import { virtualTable } from "./table.js";

export const title = "A decision";
export const hint = "Why a pod is where it is, or why no node takes it, and what would help. In the picture below every column of dots is a node, every line a plugin.";

const VERDICTS = { Placed: "placed", Fits: "fits", NotNow: "not now", Never: "never", Waiting: "waiting" };

export function show(main) {
  const { params } = current();
  const pod = params.get("pod") || "", attempt = params.get("attempt") || "";
  let stopped = false, parts = [], table = null, followed = null;
  if (!pod) {
    fill(main, h("h2", null, title), h("p", { class: "loading" }, "Looking for the latest…"));
    latest(main, () => stopped);
    return { stop() { stopped = true; }, table: () => null };
  }
  const [namespace, podName] = pod.split("/");
  const head = h("div", { class: "head" }, h("h2", null, h("span", { class: "dim" }, namespace, " / "), name(podName || pod)));
  const body = h("div", null, h("p", { class: "loading" }, "Asking every plugin about every node…"));
  fill(main, head, body);

  async function load() {
    const known = { pod, attempt, at: attempt ? "" : undefined };
    let data;
    try {
      data = await getColumns("api/explain", known);
    } catch (error) {
      if (!stopped) fill(body, h("p", { class: "error" }, error.message), await logged());
      return;
    }
    if (stopped) return;
    draw(data, await logged());
    if (["NotNow", "Never", "Waiting"].includes(data.header.explanation.verdict)) loadFixes(known);
  }

  // What the log of attempts says about this one.
  async function logged() {
    const wanted = Number(params.get("number")) || Number(attempt);
    if (!wanted) return null;
    try { if (!store.decisions) await loadDecisions(); } catch { return null; }
    const row = store.decisions.find((each) => each.number === wanted && each.pod === pod);
    if (!row) return null;
    return h("p", { class: "dim" }, `Attempt ${number(row.number)} at `, h("time", { title: iso(row.time) }, time(row.time)), `: ${row.outcome}`,
      row.node && [" on ", link(address("map", { node: row.node }), row.node)], row.evaluated ? `, ${number(row.feasible)} of ${count(row.evaluated, "node")} fit` : "", ".", row.message && h("span", { class: "quote" }, row.message));
  }

  function draw({ header, columns }, log) {
    const told = header.explanation, names = texts(columns.name);
    const chosen = told.chosen;
    fill(body,
      h("p", { class: "verdict" }, h("span", { class: `chip verdict-${told.verdict}` }, VERDICTS[told.verdict]), " ", sentence(told)),
      told.reasons.length > 0 && h("p", { class: "why" }, mainReason(told)),
      told.waitingFor.length > 0 && section("Waits for", h("ul", null, told.waitingFor.map((each) => h("li", null, each.what)))),
      h("section", { id: "fixes", "aria-live": "polite" }),
      chosen && chosen.total !== null && facts([
        ["Node", chosen.node], ["Total score", number(chosen.total)], ["Rank", `${chosen.rank} of ${number(told.nodes.feasible)}`],
        ["Ahead of the next by", chosen.margin === null ? "no other node fits" : chosen.margin < 0 ? `behind by ${-chosen.margin}` : String(chosen.margin)],
        ["Tied with", count(chosen.tied, "node")], ["Decided by", [...chosen.decisive, ...chosen.tying].join(", ") || "no single plugin"]]),
      log,
      h("p", { class: "bar" },
        link(address("map", { pod, attempt, node: chosen ? chosen.node : "" }), "Show on the map"),
        chosen && link(address("map", { node: chosen.node }), `Node ${chosen.node}`)),
      told.reasons.length > 0 && section("Why nodes were rejected", reasons(told)),
      matrixSection(header, columns, names, told),
      told.wokenBy.length > 0 && section("What would have it tried again", h("ul", null, told.wokenBy.map((each) => h("li", null, h("strong", null, each.plugin), ": ", each.words.join(", "))))),
      told.message && section("Message in the pod's condition", h("p", { class: "quote" }, told.message)),
      told.notes.length > 0 && section("Limits of this answer", h("ul", { class: "small" }, told.notes.map((each) => h("li", null, each)))));
  }

  // The reason that alone keeps most nodes away tells more than the one that most nodes share.
  function mainReason(told) {
    const [first] = [...told.reasons].sort((a, b) => b.onlyReason - a.onlyReason || b.nodes - a.nodes);
    return [`${number(first.nodes)} of ${count(told.nodes.total, "node")}: ${inWords(first.reason)}`, first.detail ? ` (${first.detail})` : "", told.reasons.length > 1 ? `; ${count(told.reasons.length - 1, "other reason")} below.` : "."];
  }

  function reasons(told) {
    const rows = told.reasons.map((each) => h("tr", null, h("td", null, each.reason, each.detail && h("span", { class: "dim" }, `: ${each.detail}`)), h("td", { class: "right" }, number(each.nodes)),
      h("td", { class: "right" }, number(each.onlyReason)), h("td", null, each.plugin), h("td", null, each.remedy)));
    return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Why nodes were rejected" }, h("table", null, h("thead", null, h("tr", null, ["Reason", "Nodes", "Only reason", "Plugin", "What would change it"].map((each, i) => h("th", { scope: "col", class: i === 1 || i === 2 ? "right" : "" }, each)))), h("tbody", null, rows)));
  }

  // -- nodes × plugins ------------------------------------------------------------------------------

  function matrixSection(header, columns, names, told) {
    if (!names.length) return section("Nodes and plugins", h("p", { class: "empty" }, "No node was looked at."));
    const feasible = header.feasible;
    const rejecting = [...new Set(header.rejections.map((each) => each.plugin))];
    const plugins = [...new Set([...rejecting, ...header.plugins])];
    const find = new Map(rejecting.map((plugin) => [plugin, header.rejections.map((each, at) => [each, columns[`rejection ${at}`]]).filter(([each]) => each.plugin === plugin)]));

    function cell(plugin, k) {
      for (const [each, ids] of find.get(plugin) || []) if (ids[k] >= 0) return { rejected: each.statuses[ids[k]].join(", ") + (each.nominated ? " (because of nominated pods)" : "") };
      if (k < feasible && columns[`weighted ${plugin}`]) return { score: columns[`normalized ${plugin}`][k], weighted: columns[`weighted ${plugin}`][k], raw: columns[`raw ${plugin}`][k] };
      return k < feasible || find.has(plugin) ? {} : { unasked: true };
    }

    const picture = heatMap(plugins, names, cell, (k) => { table.reveal((row) => row === k); amend({ node: names[k] }); selected = names[k]; table.redraw(); });
    parts.push(picture);
    let selected = current().params.get("node") || (told.chosen && told.chosen.node);
    table = virtualTable("Nodes and plugins", [
      { key: "name", title: "Node", width: "16rem", value: (k) => names[k], cell: (k) => link(address("map", { node: names[k] }), names[k]) },
      { key: "rank", title: "Rank", width: "5rem", right: true, value: (k) => k < feasible && columns.rank ? columns.rank[k] : Infinity, cell: (k) => k < feasible && columns.rank ? columns.rank[k] : "–" },
      { key: "total", title: "Total", width: "5rem", right: true, value: (k) => k < feasible && columns.total ? columns.total[k] : -Infinity, cell: (k) => k < feasible && columns.total ? number(columns.total[k]) : h("span", { class: "dim" }, "no") },
      ...plugins.map((plugin) => ({
        key: plugin, title: plugin, width: "9.5rem",
        value: (k) => { const each = cell(plugin, k); return each.rejected ? -1 : each.score ?? 101; },
        cell: (k) => {
          const each = cell(plugin, k);
          if (each.rejected) return h("span", { class: "rejected", title: each.rejected }, name(each.rejected));
          if (each.unasked) return h("span", { class: "dim", title: "Only nodes that fit are scored" }, "–");
          if (each.score === undefined) return h("span", { class: "dim" }, "ok");
          const at = step(each.score / 100);
          return h("span", { class: "heat figures", style: { background: COLOURS[at], color: ink(at) }, title: `raw ${each.raw}, normalised ${each.score}, weighted ${each.weighted}` }, `${each.score}`, each.weighted !== each.score && h("small", null, ` ×${trimmed(each.weighted / (each.score || 1))}`));
        },
      })),
    ], { selected: (k) => names[k] === selected });
    table.set([...names.keys()]);
    queueMicrotask(() => table && table.reveal((k) => names[k] === selected));
    table.element.classList.add("short", "matrix");
    return section("Nodes and plugins",
      h("p", { class: "dim small" }, `${number(feasible)} of ${count(names.length, "node")} fit. Best nodes first, then those with the fewest reasons against them.`),
      legend("Score", "0", "100", [["--reject", "rejected"], ["--none", "passed, gives no score"]]), picture.box, table.element);
  }

  function heatMap(plugins, names, cell, onpick) {
    const image = new ImageData(names.length, plugins.length), pixels = new Uint32Array(image.data.buffer);
    const reject = pixel(css("--reject")), none = pixel(css("--none")), blank = pixel(css("--page"));
    plugins.forEach((plugin, r) => {
      for (let k = 0; k < names.length; k++) {
        const each = cell(plugin, k);
        pixels[r * names.length + k] = each.rejected ? reject : each.unasked ? blank : each.score === undefined ? none : STEPS[step(each.score / 100)];
      }
    });
    // Wider bitmaps than browsers allow are cut into parts.
    const part = 8192, canvases = [];
    for (let from = 0; from < names.length; from += part) {
      const width = Math.min(part, names.length - from), made = document.createElement("canvas");
      made.width = width;
      made.height = plugins.length;
      made.getContext("2d").putImageData(image, -from, 0);
      canvases.push([from, width, made]);
    }
    const left = 190, line = 18;
    const picture = canvasBox(`Heat map: ${count(plugins.length, "plugin")} by ${count(names.length, "node")}; the table below says the same`, (context, width, height) => {
      context.clearRect(0, 0, width, height);
      context.imageSmoothingEnabled = false;
      const room = width - labelRoom(width) - 4, at = labelRoom(width), wide = Math.min(24, room / names.length);
      for (const [from, size, canvas] of canvases) context.drawImage(canvas, at + from * wide, 0, size * wide, plugins.length * line);
      context.fillStyle = css("--page");
      plugins.forEach((_, r) => context.fillRect(at, (r + 1) * line - 1, room, 1));
      if (wide >= 5) for (let k = 1; k <= names.length; k++) context.fillRect(at + k * wide - 1, 0, 1, plugins.length * line);
      context.fillStyle = css("--dim");
      context.font = "12px system-ui, sans-serif";
      context.textAlign = "right";
      plugins.forEach((plugin, r) => context.fillText(plugin, at - 8, r * line + 13, at - 10));
      context.textAlign = "left";
    });
    const labelRoom = (width) => (width < 500 ? 110 : left);
    picture.box.style.height = `${plugins.length * line + 4}px`;
    picture.box.classList.add("heatmap");
    const place = (event) => {
      const width = picture.box.clientWidth, at = labelRoom(width), wide = Math.min(24, (width - at - 4) / names.length);
      const k = Math.floor((event.offsetX - at) / wide), r = Math.floor(event.offsetY / line);
      return k >= 0 && k < names.length && plugins[r] ? [k, plugins[r]] : null;
    };
    picture.canvas.addEventListener("pointermove", (event) => {
      const found = place(event);
      if (!found) { hideTip(); return; }
      const each = cell(found[1], found[0]);
      showTip(event.clientX, event.clientY, h("strong", null, name(names[found[0]])), h("br"), found[1], ": ", each.rejected || (each.unasked ? "not scored" : each.score === undefined ? "passed" : `score ${each.score} (raw ${each.raw}, weighted ${each.weighted})`));
    });
    picture.canvas.addEventListener("pointerleave", hideTip);
    picture.canvas.addEventListener("click", (event) => { const found = place(event); if (found) onpick(found[0]); });
    return picture;
  }

  // -- fixes ---------------------------------------------------------------------------------------

  async function loadFixes(known) {
    const place = body.querySelector("#fixes");
    fill(place, h("h3", null, "What would help"), h("p", { class: "loading" }, "Trying changes in a copy of the cluster…"));
    try {
      const { header } = await getColumns("api/explain", { ...known, fix: "1" });
      const fixes = header.explanation.fixes || [];
      if (stopped) return;
      fill(place, h("h3", null, "What would help"), fixes.length
        ? [h("p", { class: "dim small" }, "Each was tried in a copy of the cluster."), h("ol", { class: "fixes" }, fixes.map(fixItem))]
        : h("p", { class: "dim" }, "No small change was found."));
    } catch (error) { if (!stopped) fill(place, h("p", { class: "error" }, error.message)); }
  }

  function fixItem(fix) {
    const said = h("span", { class: "small", role: "status" });
    const result = fix.places === null ? `fits ${fix.node}${fix.otherNodes ? ` and ${count(fix.otherNodes, "other node")}` : ""}` : `places ${number(fix.places)} of ${count(fix.wanted, "pending pod")}`;
    const added = fix.changes.filter((each) => each.kind === "AddNode"), canRun = fix.commands.length > 0 || added.length === fix.changes.length;
    return h("li", null, h("div", { class: "fix" }, h("strong", null, fix.changes.map((each) => each.text).join("; ")), h("span", { class: "dim" }, result),
      store.meta.canAct && !attempt && !current().params.get("at") && canRun && button("Apply", (event) => applyFix(fix, added, event.target, said), { class: "primary" }),
      fix.commands.length > 0 && copyButton(fix.commands.join("\n")), said),
    fix.effects.map((each) => h("div", { class: "dim small" }, each)),
    fix.commands.length > 0 && h("details", null, h("summary", { class: "small" }, fix.commands.length === 1 ? "kubectl command" : "kubectl commands"), fix.commands.map((each) => h("pre", { tabindex: "0" }, h("code", null, each)))));
  }

  async function applyFix(fix, added, pressed, said) {
    pressed.disabled = true;
    fill(said, "Applying…");
    try {
      if (!store.decisions) await loadDecisions();
      for (const each of added) {
        const [, how, like] = /^add (a node|\d+ nodes) like (.*)$/.exec(each.text);
        await post("api/act", { action: "add-nodes", count: parseInt(how, 10) || 1, like });
      }
      if (fix.commands.length) await post("api/act", { action: "run", commands: fix.commands });
      fill(said, h("span", { class: "good" }, "Done. Watching the scheduler…"));
      follow(said);
    } catch (error) { pressed.disabled = false; fill(said, h("span", { class: "error" }, error.message)); }
  }

  // What the scheduler makes of it: the pod itself, or the queue if the pod was replaced.
  function follow(said) {
    const decided = store.decisions ? store.decisions.length : 0, began = store.queueSize;
    followed = subscribe((what) => {
      if (what !== "queue" && what !== "decisions") return;
      const placed = (store.decisions || []).slice(decided).filter((each) => each.outcome === "scheduled").length;
      fill(said, h("span", { class: "good" }, placed ? `Done. ${count(placed, "pod")} placed since; ${count(store.queueSize, "pod")} waiting.` : `Done. ${count(store.queueSize, "pod")} waiting${began === store.queueSize ? " as before" : ""}.`), " ", link(address("queue"), "Queue"));
    });
  }

  load();
  return { stop() { stopped = true; if (followed) followed(); hideTip(); parts.forEach((each) => each.stop()); if (table) table.stop(); }, table: () => table };
}

// The summary begins with the verdict, which the chip says already.
function sentence(told) {
  const word = VERDICTS[told.verdict];
  return told.summary.startsWith(word) ? told.summary.slice(word.length).replace(/^[\s.:]+/, "") : told.summary;
}

function trimmed(value) { return Math.round(value * 10) / 10; }

function section(text, ...children) { return h("section", null, h("h3", null, text), children); }

function facts(rows) { return h("dl", { class: "facts" }, rows.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, name(String(value)))))); }

export function command(text) {
  return h("div", { class: "command" }, h("pre", { tabindex: "0" }, h("code", null, text)), copyButton(text));
}

function copyButton(text) {
  return button("Copy", async (event) => {
    await navigator.clipboard.writeText(text);
    event.target.textContent = "Copied";
  }, { class: "plain" });
}

// Without a pod in the address: the latest decision.
async function latest(main, isStopped) {
  let last = null;
  try { if (!store.decisions) await loadDecisions(); last = store.decisions[store.decisions.length - 1]; } catch (error) { if (!isStopped()) fill(main, h("h2", null, title), h("p", { class: "error" }, error.message)); return; }
  if (isStopped()) return;
  if (last) { amend({ pod: last.pod, number: last.number || "", attempt: store.meta.span && last.number ? last.number : "" }); dispatchEvent(new HashChangeEvent("hashchange")); }
  else fill(main, h("h2", null, title), h("p", { class: "empty" }, "There is no decision yet. Press / to search for a pod."));
}
