// Every node as a cell, with its pods inside where there is room. Of many nodes, one pixel each is kept in a bitmap that panning and zooming only scale.
import { byNode, clipped, drawNode, legendOf, podBoxes } from "./boxes.js";
import { button, canvasBox, css, fill, h, hideTip, link, name, perFrame, select, showTip } from "./dom.js";
import { amount, count, natural, percent } from "./format.js";
import { arrange } from "./layout.js";
import { amend, address, current, go } from "./route.js";
import { COLOURS, STEPS, ink, legend, pixel, step } from "./scale.js";
import { getColumns, getJson, loadNodes, loadPlacements, store, subscribe } from "./store.js";
import { virtualTable } from "./table.js";
import { texts } from "./columns.js";
import { nodeActions } from "./act.js";

const CORDONED = 1, TAINTED = 2, NOT_READY = 4, FLASH = 1200;
const SLICE = 8, CELLS = 5, PODS = 56; // milliseconds of painting per frame; widths from which cells, and pods in them, are drawn one by one
const still = matchMedia("(prefers-reduced-motion: reduce)");

export const title = "Map";
export const hint = "Every square is a node, grouped by zone; the brighter, the fuller. With room, its pods are drawn inside. Scroll to zoom, drag to move, click a node to see what is on it.";

export function flagTexts(flags) {
  return [[CORDONED, "cordoned"], [TAINTED, "tainted"], [NOT_READY, "not ready"]].filter(([bit]) => flags & bit).map(([, text]) => text);
}

export function show(main) {
  const { params } = current();
  const state = {
    group: params.get("group") || "zone", colour: params.get("color") || "", as: params.get("as") || "map",
    selected: params.get("node") || "", pod: params.get("pod") || "", scores: null,
  };
  const tools = h("div", { class: "bar" }), legendBox = h("div"), body = h("div", { class: "body" });
  const panel = h("aside", { class: "panel", "aria-label": "Node", hidden: true });
  const summary = h("p", { class: "summary" });
  fill(main, h("div", { class: "head" }, h("h2", null, title), summary), tools, legendBox, h("div", { class: "split" }, body, panel));

  let layout = null, bitmaps = [], view = null, place = null, hover = -1, stopped = false, pods = null, hits = [], turn = 0;

  // -- what the colours mean ----------------------------------------------------------------------

  function colourOf(i) {
    if (state.pod) {
      const scores = state.scores;
      if (!scores) return -1;
      const value = scores.value[store.nodes.rows[i]];
      return value === undefined ? -1 : value;
    }
    return store.nodes.share(state.colour, i);
  }

  function textOf(i) {
    const nodes = store.nodes;
    if (state.pod) {
      const scores = state.scores, row = nodes.rows[i];
      if (!scores) return "";
      return scores.value[row] >= 0 ? `total ${scores.total[row]}` : scores.why[row] || "rejected";
    }
    return `${amount(state.colour, nodes.columns[`requested ${state.colour}`][i])} of ${amount(state.colour, nodes.columns[`allocatable ${state.colour}`][i])} (${percent(nodes.columns[`requested ${state.colour}`][i], nodes.columns[`allocatable ${state.colour}`][i])})`;
  }

  async function loadScores() {
    state.scores = null;
    if (!state.pod) return;
    const { header, columns } = await getColumns("api/explain", { pod: state.pod, attempt: current().params.get("attempt") });
    const names = texts(columns.name), value = [], total = [], why = [];
    const totals = columns.total || [];
    const high = totals.length ? totals[0] : 0, low = totals.length ? totals[totals.length - 1] : 0;
    for (let k = 0; k < names.length; k++) {
      const i = store.nodes.indexOf(names[k]);
      if (i < 0) continue;
      const row = store.nodes.rows[i];
      if (k < header.feasible) {
        value[row] = totals.length ? (high > low ? (totals[k] - low) / (high - low) : 1) : 1;
        total[row] = totals.length ? totals[k] : "–";
      } else {
        value[row] = -1;
        why[row] = header.rejections.map((each, at) => { const id = columns[`rejection ${at}`][k]; return id < 0 ? null : each.statuses[id].join(", "); }).filter(Boolean).join("; ");
      }
    }
    state.scores = { value, total, why, low, high, chosen: header.explanation.chosen && header.explanation.chosen.node };
  }

  // -- groups and bitmaps -------------------------------------------------------------------------

  async function groupsOf() {
    const nodes = store.nodes;
    let ids = nodes.columns.zone, values = nodes.zones, absent = "no zone";
    if (state.group === "none") return [{ title: "", members: Int32Array.from(nodes.names.keys()) }];
    if (state.group !== "zone") {
      ({ ids, values } = await nodes.loadLabel(state.group));
      absent = `without ${state.group}`;
    }
    const members = new Map();
    for (let i = 0; i < nodes.length; i++) {
      const list = members.get(ids[i]);
      if (list) list.push(i); else members.set(ids[i], [i]);
    }
    return [...members].map(([id, list]) => ({ title: id < 0 ? absent : values[id], members: Int32Array.from(list) }))
      .sort((a, b) => natural(a.title, b.title));
  }

  async function rebuild() {
    if (!store.nodes) return;
    if (!state.colour) state.colour = store.nodes.resources.includes("cpu") ? "cpu" : store.nodes.resources[0];
    const groups = await groupsOf();
    if (stopped) return;
    drawTools();
    drawSummary();
    layout = arrange(groups, body.clientWidth || 600, Math.max(200, body.clientHeight));
    place = new Int32Array(store.nodes.length * 2);
    bitmaps = layout.groups.map((group, at) => {
      group.members.forEach((i, k) => { place[2 * i] = at; place[2 * i + 1] = k; });
      const canvas = document.createElement("canvas");
      canvas.width = group.columns;
      canvas.height = group.lines;
      const context = canvas.getContext("2d");
      const image = context.createImageData(group.columns, group.lines);
      return { canvas, context, image, pixels: new Uint32Array(image.data.buffer) };
    });
    view = null;
    if (table) setRows();
    paintAll();
    loadPods();
  }

  // Few nodes have room for their pods.
  async function loadPods() {
    try {
      const placements = await loadPlacements();
      if (stopped) return;
      pods = placements && byNode(placements);
      drawTools();
      redraw();
    } catch { pods = null; /* the map is drawn without pods */ }
  }
  const loadPodsSoon = debouncedOnce(() => { if (!stopped && store.nodes && !state.pod) loadPods(); }, 250);

  function pixelOf(i) {
    const share = colourOf(i);
    return share < 0 ? pixel(css("--none")) : STEPS[step(share)];
  }

  // In slices, so that the first of 100,000 nodes are seen at once.
  function paintAll() {
    const none = pixel(css("--none")), mine = ++turn;
    let at = 0, from = 0;
    (function slice() {
      if (stopped || mine !== turn) return;
      const until = performance.now() + SLICE;
      while (at < bitmaps.length && performance.now() < until) {
        const { members } = layout.groups[at], { pixels, context, image } = bitmaps[at], to = Math.min(members.length, from + 5000);
        for (let k = from; k < to; k++) {
          const share = colourOf(members[k]);
          pixels[k] = share < 0 ? none : STEPS[step(share)];
        }
        from = to;
        if (from < members.length) continue;
        context.putImageData(image, 0, 0);
        at++;
        from = 0;
      }
      if (from) bitmaps[at].context.putImageData(bitmaps[at].image, 0, 0);
      redraw();
      if (at < bitmaps.length) requestAnimationFrame(slice);
    })();
  }

  function paint(indices) {
    if (!place) return;
    const touched = new Set();
    for (const i of indices) {
      const at = place[2 * i];
      if (!bitmaps[at]) continue;
      bitmaps[at].pixels[place[2 * i + 1]] = pixelOf(i);
      touched.add(at);
    }
    for (const at of touched) bitmaps[at].context.putImageData(bitmaps[at].image, 0, 0);
  }

  // -- drawing ------------------------------------------------------------------------------------

  const box = canvasBox("Map of nodes. Arrow keys move between nodes, Enter opens one, plus and minus zoom.", draw, { role: "application", "aria-roledescription": "map of nodes" });

  function fitted(width, height) {
    const pad = 8, scale = Math.min((width - 2 * pad) / layout.width, (height - 2 * pad) / (layout.height * layout.ratio), 420);
    return { scale, x: (width - layout.width * scale) / 2, y: Math.max(pad, Math.min((height - layout.height * scale * layout.ratio) / 2, 24)) };
  }

  function draw(context, width, height) {
    context.clearRect(0, 0, width, height);
    hits = [];
    if (!layout || !store.nodes) return;
    view = view || fitted(width, height);
    context.imageSmoothingEnabled = false;
    const { scale } = view, high = scale * layout.ratio, dim = css("--dim");
    layout.groups.forEach((group, at) => {
      const x = view.x + group.x * scale, y = view.y + group.y * high, w = group.columns * scale, tall = group.lines * high;
      if (x > width || y > height || x + w < 0 || y + tall < 0) return;
      if (scale < CELLS) context.drawImage(bitmaps[at].canvas, x, y, w, tall);
      else visible(group, x, y, scale, high, width, height, (i, left, top) => cell(context, i, left, top, scale, high));
      if (group.title && (w > 40 || layout.groups.length < 12)) {
        context.fillStyle = dim;
        context.font = "12px system-ui, sans-serif";
        context.textBaseline = "alphabetic";
        const room = Math.max(w, 60), whole = `${group.title} · ${count(group.members.length, "node")}`;
        context.fillText(context.measureText(whole).width <= room ? whole : clipped(context, group.title, room), x, y - 6);
      }
    });
    flash(context);
    if (state.scores && state.scores.chosen) outline(context, store.nodes.indexOf(state.scores.chosen), css("--accent"), 3);
    outline(context, store.nodes.indexOf(state.selected), css("--text"), 2);
    if (hover >= 0) outline(context, hover, css("--dim"), 1);
  }

  function visible(group, x, y, scale, high, width, height, each) {
    const c0 = Math.max(0, Math.floor(-x / scale)), c1 = Math.min(group.columns - 1, Math.floor((width - x) / scale));
    const r0 = Math.max(0, Math.floor(-y / high)), r1 = Math.min(group.lines - 1, Math.floor((height - y) / high));
    for (let r = r0; r <= r1; r++) for (let c = c0; c <= c1; c++) {
      const k = r * group.columns + c;
      if (k < group.members.length) each(group.members[k], x + c * scale, y + r * high);
    }
  }

  // One node on whole pixels, with a gap to its right and below.
  function cell(context, i, x, y, scale, high) {
    const nodes = store.nodes, gap = Math.max(1, Math.min(6, Math.round(scale / 16))), share = colourOf(i), flags = nodes.columns.flags[i];
    const left = Math.round(x), top = Math.round(y), wide = Math.round(x + scale) - left - gap, tall = Math.round(y + high) - top - gap;
    if (pods && !state.pod && scale >= PODS) {
      const whole = nodes.columns[`allocatable ${state.colour}`] ? nodes.columns[`allocatable ${state.colour}`][i] : 0;
      const boxes = podBoxes(pods.get(nodes.names[i]) || [], whole, state.colour, left, top, wide, tall);
      drawNode(context, { name: nodes.names[i], share, marks: flagTexts(flags).join(", ") }, boxes, left, top, wide, tall);
      hits.push(...boxes);
      return;
    }
    context.fillStyle = share < 0 ? css("--none") : COLOURS[step(share)];
    context.fillRect(left, top, wide, tall);
    const dark = share < 0 ? css("--text") : ink(step(share));
    if (flags && scale >= 7) {
      const size = Math.min(14, scale / 2.6);
      context.fillStyle = dark;
      context.beginPath();
      context.moveTo(left + wide - size, top);
      context.lineTo(left + wide, top);
      context.lineTo(left + wide, top + size);
      context.fill();
    }
    if (scale < 52) return;
    context.fillStyle = dark;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "alphabetic";
    context.fillText(clipped(context, nodes.names[i], wide - 10), left + 5, top + 16);
    context.fillText(state.pod ? clipped(context, textOf(i), wide - 10) : share < 0 ? "–" : `${Math.round(share * 100)} %`, left + 5, top + 31);
  }

  function cellAt(i) {
    const group = layout.groups[place[2 * i]], k = place[2 * i + 1];
    return [view.x + (group.x + k % group.columns) * view.scale, view.y + (group.y + Math.floor(k / group.columns)) * view.scale * layout.ratio];
  }

  function outline(context, i, colour, width) {
    if (i < 0 || !place || i * 2 >= place.length) return;
    const [x, y] = cellAt(i);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(Math.round(x) - 1, Math.round(y) - 1, view.scale, view.scale * layout.ratio);
  }

  function flash(context) {
    const now = performance.now(), accent = css("--accent");
    let waits = false;
    for (const [i, since] of store.changed) {
      const age = now - since;
      if (age > FLASH) { store.changed.delete(i); continue; }
      waits = true;
      context.globalAlpha = still.matches ? 1 : 1 - age / FLASH;
      outline(context, i, accent, Math.max(1.5, Math.min(3, view.scale / 10)));
    }
    context.globalAlpha = 1;
    if (waits) still.matches ? setTimeout(box.redraw, FLASH) : box.redraw();
  }

  const redraw = () => { box.redraw(); };

  // -- moving -------------------------------------------------------------------------------------

  function nodeAt(x, y) {
    if (!layout || !view) return -1;
    const cx = (x - view.x) / view.scale, cy = (y - view.y) / (view.scale * layout.ratio);
    for (const group of layout.groups) {
      const c = Math.floor(cx - group.x), r = Math.floor(cy - group.y);
      if (c >= 0 && r >= 0 && c < group.columns && r < group.lines) {
        const k = r * group.columns + c;
        return k < group.members.length ? group.members[k] : -1;
      }
    }
    return -1;
  }

  function zoom(factor, x, y) {
    if (!view) return;
    const scale = Math.max(0.2, Math.min(600, view.scale * factor)), by = scale / view.scale;
    view = { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
    redraw();
  }

  const canvas = box.canvas;
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && view) {
      const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
      if (drag.moved || Math.hypot(dx, dy) > 3) {
        view = { ...view, x: view.x + dx, y: view.y + dy };
        drag = { x: event.offsetX, y: event.offsetY, moved: true };
        hideTip();
        redraw();
      }
      return;
    }
    const i = nodeAt(event.offsetX, event.offsetY);
    if (i !== hover) { hover = i; redraw(); }
    const hit = hits.find((each) => event.offsetX >= each.x && event.offsetX < each.x + each.w && event.offsetY >= each.y && event.offsetY < each.y + each.h);
    if (i < 0) hideTip();
    else showTip(event.clientX, event.clientY, h("strong", null, name(store.nodes.names[i])), h("br"), textOf(i),
      flagTexts(store.nodes.flags(i)).map((text) => [h("br"), text]), hit && [h("br"), name(hit.pod.pod), h("br"), `requests ${amount("cpu", hit.pod.cpu)}, ${amount("memory", hit.pod.memory)}`]);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      const i = nodeAt(event.offsetX, event.offsetY);
      open(i < 0 ? "" : store.nodes.names[i]);
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => { hover = -1; hideTip(); redraw(); });
  canvas.addEventListener("dblclick", (event) => zoom(2, event.offsetX, event.offsetY));
  canvas.addEventListener("keydown", (event) => {
    const middle = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    if (event.key === "+" || event.key === "=") zoom(1.4, ...middle);
    else if (event.key === "-") zoom(1 / 1.4, ...middle);
    else if (event.key === "0") { view = null; redraw(); }
    else if (event.key.startsWith("Arrow")) { event.preventDefault(); move(event.key); }
    else if (event.key === "Enter" && hover >= 0) open(store.nodes.names[hover]);
    else if (event.key === "Escape") open("");
  });

  function move(key) {
    const from = hover >= 0 ? hover : Math.max(0, store.nodes.indexOf(state.selected));
    const group = layout.groups[place[2 * from]], k = place[2 * from + 1];
    const to = k + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -group.columns, ArrowDown: group.columns }[key];
    if (to >= 0 && to < group.members.length) hover = group.members[to];
    else {
      const next = layout.groups[place[2 * from] + (to < 0 ? -1 : 1)];
      hover = next ? next.members[to < 0 ? next.members.length - 1 : 0] : from;
    }
    const [x, y] = cellAt(hover), edge = 40;
    if (x < edge || x > canvas.clientWidth - edge) view.x += canvas.clientWidth / 2 - x;
    if (y < edge || y > canvas.clientHeight - edge) view.y += canvas.clientHeight / 2 - y;
    canvas.setAttribute("aria-label", `${store.nodes.names[hover]}, ${textOf(hover)}. Map of nodes: arrow keys move, Enter opens.`);
    redraw();
  }

  // -- controls, table, panel ---------------------------------------------------------------------

  function drawTools() {
    const nodes = store.nodes;
    const colours = nodes.resources.map((each) => [each, each === "pods" ? "number of pods" : each.startsWith("devices ") ? `allocated ${each}` : `requested ${each}`]);
    fill(tools,
      h("div", { class: "tabs", role: "group", "aria-label": "Show as" },
        ["map", "table"].map((each) => button(each === "map" ? "Map" : "Table", () => change({ as: each }), { "aria-pressed": String(state.as === each) }))),
      state.as === "map" && select("Group by", [["zone", "zone"], ["none", "nothing"], ...nodes.labelKeys.map((key) => [key, key])], state.group, (group) => change({ group })),
      state.as === "map" && (state.pod
        ? h("span", { class: "chip" }, "Colour: score for ", link(address("decision", { pod: state.pod }), state.pod), button("×", () => change({ pod: "", attempt: "" }), { "aria-label": "Colour by use again", class: "plain" }))
        : select("Colour by", colours, state.colour, (color) => change({ color }))),
      h("span", { class: "push" }),
      state.as === "map" && h("span", { class: "tabs", role: "group", "aria-label": "Zoom" },
        button("−", () => zoom(1 / 1.5, canvas.clientWidth / 2, canvas.clientHeight / 2), { "aria-label": "Zoom out" }),
        button("Fit", () => { view = null; redraw(); }),
        button("+", () => zoom(1.5, canvas.clientWidth / 2, canvas.clientHeight / 2), { "aria-label": "Zoom in" })));
    fill(legendBox, state.as === "table" ? null : state.pod
      ? legend("Total score", state.scores && state.scores.high ? String(state.scores.low) : "low", state.scores && state.scores.high ? String(state.scores.high) : "high", [["--none", "rejected"], ["transparent", "chosen", "chosen"]])
      : legend(state.colour === "pods" ? "Pods of allowed pods" : `${state.colour} requested`, "0 %", "100 %", pods ? legendOf(store.placements) : [["--none", "node has none"], ["--dim", "cordoned, tainted or not ready", "corner"]]));
  }

  function drawSummary() {
    const nodes = store.nodes, parts = [count(nodes.length, "node")];
    for (const each of nodes.resources.slice(0, 2).concat("pods")) {
      const used = sum(nodes.columns[`requested ${each}`]), whole = sum(nodes.columns[`allocatable ${each}`]);
      if (each === "pods") parts.push(count(used, "pod"));
      else if (whole) parts.push(`${each} ${percent(used, whole)} requested`);
    }
    fill(summary, parts.join(" · "));
  }

  function change(changes) {
    amend(changes);
    if ("color" in changes) state.colour = changes.color;
    if ("group" in changes) state.group = changes.group;
    if ("as" in changes) { state.as = changes.as; showBody(); }
    if ("pod" in changes) { state.pod = changes.pod; state.scores = null; }
    rebuild();
  }

  let table = null;
  function showBody() {
    hideTip();
    if (table) { table.stop(); table = null; }
    if (state.as === "map") { fill(body, box.box); return; }
    const nodes = () => store.nodes;
    table = virtualTable("Nodes", [
      { key: "name", title: "Node", width: "clamp(8rem, 26vw, 24rem)", value: (i) => nodes().names[i], cell: (i) => name(nodes().names[i]) },
      { key: "zone", title: "Zone", width: "7rem", value: (i) => nodes().zone(i), cell: (i) => name(nodes().zone(i) || "–") },
      ...store.nodes.resources.map((each) => ({
        key: each, title: each, right: true, hint: `${each}: requested of allocatable`,
        value: (i) => nodes().share(each, i),
        cell: (i) => usage(each, nodes().columns[`requested ${each}`][i], nodes().columns[`allocatable ${each}`][i]),
      })),
      { key: "flags", title: "State", value: (i) => nodes().flags(i), cell: (i) => flagTexts(nodes().flags(i)).join(", ") || "ready" },
    ], { onopen: (i) => open(store.nodes.names[i]), selected: (i) => store.nodes.names[i] === state.selected, mark: (i) => store.changed.has(i), empty: "The cluster has no nodes." });
    fill(body, table.element);
    setRows();
  }
  function setRows() { table.set([...store.nodes.names.keys()]); }

  async function open(node) {
    state.selected = node;
    amend({ node });
    redraw();
    if (table) table.redraw();
    if (!node) { panel.hidden = true; panel.replaceChildren(); return; }
    panel.hidden = false;
    if (innerWidth <= 760) panel.scrollIntoView({ block: "nearest" });
    if (panel.dataset.node !== node) fill(panel, h("p", { class: "loading" }, "Loading…"));
    panel.dataset.node = node;
    try {
      const details = await getJson("api/node", { name: node });
      if (state.selected === node && !stopped) drawPanel(details);
    } catch (error) { fill(panel, h("p", { class: "error" }, error.message)); }
  }

  function drawPanel(node) {
    fill(panel,
      h("div", { class: "panelhead" }, h("h3", null, name(node.name)), button("×", () => open(""), { class: "plain", "aria-label": "Close" })),
      h("dl", null, Object.entries(node.amounts).filter(([, [, whole]]) => whole).map(([resource, [used, whole]]) => [h("dt", null, resource), h("dd", null, usage(resource, used, whole))])),
      (node.cordoned || node.taints.length > 0) && h("p", null, node.cordoned && h("span", { class: "chip" }, "cordoned"), node.taints.map((each) => h("span", { class: "chip", title: each }, name(each)))),
      h("p", null, link(address("whatif", { changes: JSON.stringify({ drain: [node.name] }) }), "What if it were drained?")),
      store.meta.canAct && !current().params.get("at") && nodeActions(node, () => open(node.name)),
      h("h4", null, count(node.podCount, "pod")),
      h("ul", { class: "plain" }, node.pods.map((each) => h("li", null, link(address("decision", { pod: each.pod }), each.pod), h("span", { class: "dim figures" }, ` ${amount("cpu", each.cpu)}, ${amount("memory", each.memory)}`)))),
      h("h4", null, "Labels"),
      h("ul", { class: "plain small" }, Object.entries(node.labels).map(([key, value]) => h("li", null, name(`${key}=${value}`)))));
  }

  // -- life ---------------------------------------------------------------------------------------

  const slowSummary = perFrame(() => { if (store.nodes && !stopped) drawSummary(); });
  const refreshPanel = debouncedOnce(() => { if (state.selected && !stopped) open(state.selected); }, 700);
  const unsubscribe = subscribe((what) => {
    if (stopped) return;
    if (what === "nodes") { if (state.selected) refreshPanel(); rebuild(); }
    else if (what === "loading" && !layout) fill(summary, store.loaded ? `Loading nodes… ${Math.round(store.loaded * 100)} %` : "Loading nodes…");
    else if (what === "changed") {
      if (pods) loadPodsSoon();
      paint(store.changed.keys());
      slowSummary();
      if (table) table.redraw(); else redraw();
      if (state.selected && store.changed.has(store.nodes.indexOf(state.selected))) refreshPanel();
    } else if (what === "theme") { paintAll(); drawTools(); redraw(); }
  });

  fill(summary, "Loading nodes…");
  (async () => {
    try { await loadIfNeeded(); } catch (error) { fill(summary, h("span", { class: "error" }, error.message)); return; }
    if (stopped) return;
    showBody();
    try { await loadScores(); } catch (error) { fill(summary, error.message); state.pod = ""; }
    if (stopped) return;
    await rebuild();
    if (state.selected) open(state.selected);
  })();

  return { stop() { stopped = true; unsubscribe(); box.stop(); if (table) table.stop(); hideTip(); }, table: () => table };
}

let loadedAt = null;
async function loadIfNeeded() {
  const at = current().params.get("at") || "";
  if (store.nodes && loadedAt === at) return;
  if (store.nodes && loadedAt === null && !at) { loadedAt = at; return; }
  await loadNodes();
  loadedAt = at;
}

export function usage(resource, used, whole) {
  const share = whole > 0 ? used / whole : 0;
  return h("span", { class: "usage", title: `${amount(resource, used)} of ${amount(resource, whole)} requested` },
    h("span", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: `${Math.min(100, share * 100)}%`, background: COLOURS[step(share)] } })),
    h("span", { class: "figures" }, whole > 0 ? percent(used, whole) : "–"));
}

function sum(values) { let total = 0; for (const each of values) total += each; return total; }

function debouncedOnce(work, delay) {
  let timer = 0;
  return () => { if (!timer) timer = setTimeout(() => { timer = 0; work(); }, delay); };
}
