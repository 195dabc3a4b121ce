// What would happen: changes by forms or as YAML, and the nodes with their pods before and after.
import { byNode, drawNode, legendOf, podBoxes, workloadsOf } from "./boxes.js";
import { button, canvasBox, css, debounced, fill, h, hideTip, link, name, select, showTip } from "./dom.js";
import { amount, count, natural, number } from "./format.js";
import { sentence } from "./reasons.js";
import { address, amend, current } from "./route.js";
import { flagTexts, usage } from "./map.js";
import { loadPlacements, post, store, subscribe } from "./store.js";
import { CONFIGURATIONS, TEMPLATES, WHAT_IF_ONLY } from "./templates.js";
import { virtualTable } from "./table.js";

export const title = "What if";
export const hint = "Choose a change, and see where the scheduler would put every pod. Changes add up; nothing is changed in the cluster.";

const ALL = { ...TEMPLATES, ...WHAT_IF_ONLY };
const DELAY = 80, LONGEST_LINK = 6000, MOST_TRACES = 200, MANY = 15;
const TOO_MANY = "No picture: more than 200 nodes or 5,000 pods cannot be drawn one by one. The tables tell what would change; the map shows the cluster as it is.";
const FORMS = { drain: "Drain nodes", scale: "Scale", addNodes: "Add nodes", requests: "Change a request", config: "Another configuration", yaml: "As YAML" };

// The document that the forms stand for. JSON is YAML, so values need no quoting of their own.
function asYaml(changes) {
  const { config, ...rest } = changes, lines = Object.entries(rest).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
  const documents = [];
  if (lines.length) documents.push(["apiVersion: kubesched/v1", "kind: Changes", ...lines, ""].join("\n"));
  if (config) documents.push(CONFIGURATIONS[config]);
  return documents.join("---\n");
}

export function show(main) {
  let stopped = false, asked = null, tables = [], open = "", picture = null, suggest = () => {};
  const params = current().params, yaml = params.get("yaml");
  let changes = {}, inYaml = yaml !== null;
  try { changes = JSON.parse(params.get("changes") || "{}"); } catch { /* an address that was cut off: begin anew */ }
  if (typeof changes !== "object" || changes === null || Array.isArray(changes)) changes = {};
  const editor = h("textarea", { id: "yaml", spellcheck: false, "aria-label": "Changes and objects as YAML", rows: 16, oninput: () => ask() });
  editor.value = yaml || "";
  const state = h("p", { class: "summary" }), tabs = h("div", { class: "tabs wrap", role: "group", "aria-label": "Change" }), form = h("div", { class: "form" }), chosen = h("div", { class: "chips" });
  const result = h("div", { class: "result", "aria-live": "polite" });
  fill(main, h("div", { class: "head" }, h("h2", null, title), state), tabs, form, chosen, result);
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      editor.setRangeText("  ", editor.selectionStart, editor.selectionEnd, "end");
      ask();
    } else if (event.key === "Escape") editor.blur();
  });

  // -- forms --------------------------------------------------------------------------------------

  function drawForms() {
    fill(tabs, Object.entries(FORMS).map(([key, label]) => button(label, () => choose(key), { "aria-pressed": String(inYaml ? key === "yaml" : open === key) })));
    if (inYaml) fill(form, h("div", { class: "bar" }, select("Example", [["", "choose…"], ...Object.keys(ALL).map((each) => [each, each])], "", (key) => { if (key) { editor.value = ALL[key]; ask(); } })), editor);
    else fill(form, open ? h("div", { class: "bar" }, BUILD[open]()) : null);
    fill(chosen, inYaml ? null : chipsOf(changes).map(([text, remove]) => h("span", { class: "chip" }, name(text), button("×", () => { remove(); changed(); }, { class: "plain", "aria-label": `Without: ${text}` }))));
  }

  function choose(key) {
    const asks = inYaml !== (key === "yaml");
    if (key === "yaml") {
      if (!inYaml) editor.value = asYaml(changes) || ALL["10 replicas"];
      inYaml = true;
    } else {
      inYaml = false;
      open = open === key ? "" : key;
    }
    drawForms();
    if (key === "yaml") editor.focus();
    if (asks) ask();
  }

  function changed() {
    drawForms();
    ask();
  }

  function field(label, attributes) {
    const input = h("input", attributes);
    return [input, h("label", { class: "field" }, h("span", null, label), input)];
  }

  const nodeNames = () => (store.nodes ? [...store.nodes.names].sort(natural).slice(0, 5000) : []);
  const workloads = () => (store.placements ? [...workloadsOf(store.placements).keys()].filter(Boolean).sort(natural).map(asArgument) : []);

  // A field with the names that exist; any can be typed.
  function named(label, names, placeholder) {
    const id = `names-${label}`, options = h("datalist", { id }), [input, shown] = field(label, { list: id, placeholder, size: 28 });
    suggest = () => {
      const known = names();
      fill(options, known.map((each) => h("option", { value: each })));
      if (!input.value && known.length < 200) input.value = known[0] || "";
    };
    suggest();
    return [input, [shown, options]];
  }

  function put(key, value) { changes = { ...changes, [key]: value }; changed(); }
  function apply(make) { return button("Show", make, { class: "primary" }); }

  const BUILD = {
    drain() {
      const [node, shown] = named("Node", nodeNames, "name or label selector");
      return [shown, apply(() => { if (node.value.trim()) put("drain", [...new Set([...(changes.drain || []), node.value.trim()])]); })];
    },
    scale() {
      const [workload, shown] = named("Workload", workloads, "deployment/namespace/name"), [replicas, replicasField] = field("Replicas", { type: "number", min: 0, max: 20000, value: 10 });
      return [shown, replicasField, apply(() => put("scale", { ...changes.scale, [workload.value.trim()]: Number(replicas.value) }))];
    },
    addNodes() {
      const [like, shown] = named("Like", nodeNames, "an existing node"), [howMany, howManyField] = field("How many", { type: "number", min: 1, max: 1000, value: 2 });
      return [howManyField, shown, apply(() => put("addNodes", { ...changes.addNodes, [like.value.trim()]: Number(howMany.value) }))];
    },
    requests() {
      const [workload, shown] = named("Workload", workloads, "deployment/namespace/name"), [quantity, quantityField] = field("Request", { value: "500m", size: 8 });
      const resources = (store.nodes ? store.nodes.resources : ["cpu", "memory"]).filter((each) => each !== "pods" && !each.startsWith("devices "));
      const resource = h("select", null, resources.map((each) => h("option", { value: each }, each)));
      return [shown, h("label", { class: "field" }, h("span", null, "Resource"), resource), quantityField, apply(() => {
        const key = workload.value.trim();
        put("requests", { ...changes.requests, [key]: { ...(changes.requests || {})[key], [resource.value]: quantity.value.trim() } });
      })];
    },
    config() {
      const which = h("select", null, Object.keys(CONFIGURATIONS).map((each) => h("option", { value: each }, each)));
      const again = h("input", { type: "checkbox", checked: true });
      return [h("label", { class: "field" }, h("span", null, "Configuration"), which), h("label", { class: "field" }, again, h("span", null, "Place all pods again")), apply(() => {
        const { placeAgain: _, ...rest } = changes;
        changes = { ...rest, config: which.value, ...(again.checked ? { placeAgain: true } : {}) };
        changed();
      })];
    },
  };

  function chipsOf(all) {
    const without = (key, inner) => () => { const { [inner]: _, ...rest } = changes[key]; changes = { ...changes, [key]: rest }; if (!Object.keys(rest).length) delete changes[key]; };
    return [
      ...(all.drain || []).map((node) => [`drain ${node}`, () => { changes = { ...changes, drain: changes.drain.filter((each) => each !== node) }; if (!changes.drain.length) delete changes.drain; }]),
      ...Object.entries(all.scale || {}).map(([key, replicas]) => [`${key}: ${count(replicas, "replica")}`, without("scale", key)]),
      ...Object.entries(all.addNodes || {}).map(([key, more]) => [`${count(more, "node")} like ${key}`, without("addNodes", key)]),
      ...Object.entries(all.requests || {}).map(([key, wanted]) => [`${key} requests ${Object.entries(wanted).map(([resource, value]) => `${value} ${resource}`).join(", ")}`, without("requests", key)]),
      ...(all.config ? [[`configuration: ${all.config}`, () => { const { config: _, placeAgain: __, ...rest } = changes; changes = rest; }]] : []),
    ];
  }

  // -- asking --------------------------------------------------------------------------------------

  function ask() {
    const text = editor.value;
    amend(inYaml ? { yaml: text.length <= LONGEST_LINK ? text || " " : "", changes: "" } : { yaml: "", changes: Object.keys(changes).length ? JSON.stringify(changes) : "" });
    askSoon();
  }

  const askSoon = debounced(async () => {
    if (asked) asked.abort();
    const mine = asked = new AbortController();
    const text = inYaml ? editor.value : asYaml(changes), began = performance.now(), at = Number(current().params.get("at"));
    if (!text.trim()) { fill(state, "Nothing asked yet"); drop(); drawNow(mine); return; }
    result.classList.add("old");
    fill(state, "Asking the scheduler…");
    try {
      const answer = await post("api/whatif", { yaml: text, ...(at ? { at } : {}) }, { signal: mine.signal });
      if (stopped || mine !== asked) return;
      draw(answer);
      result.dataset.milliseconds = String(Math.round(performance.now() - began));
    } catch (error) {
      if (error.name === "AbortError" || stopped) return;
      fill(state, "");
      drop();
      fill(result, h("p", { class: "error" }, error.message));
    } finally { if (mine === asked) { result.classList.remove("old"); result.dataset.done = String(Number(result.dataset.done || 0) + 1); } }
  }, DELAY);

  function drop() {
    tables.forEach((each) => each.stop());
    tables = [];
    if (picture) picture.stop();
    picture = null;
  }

  // Without a change: the cluster as it is.
  async function drawNow(mine) {
    try {
      const placements = store.nodes ? await loadPlacements() : null;
      if (stopped || mine !== asked) return;
      suggest();
      fill(result, h("p", { class: "empty" }, "Choose a change above. The cluster stays as it is; a copy of it is changed."));
      if (placements) { picture = panes({ before: placements, after: null, plan: null }); result.append(picture.element); }
      else if (store.nodes) result.append(h("p", { class: "dim" }, TOO_MANY));
    } catch (error) { if (!stopped) fill(result, h("p", { class: "error" }, error.message)); }
  }

  // -- the answer ----------------------------------------------------------------------------------

  function draw({ plan, differences, before, after }) {
    drop();
    const [still, over] = [true, false].map((pending) => plan.unplaced.filter((each) => each.wasPending === pending));
    const [waiting, left] = [still, over].map((groups) => groups.reduce((sum, each) => sum + each.pods.length, 0));
    // A pod that was made anew on its old node has not moved.
    const moved = plan.moved.filter((each) => each.fromNode !== each.toNode), stayed = plan.moved.length - moved.length;
    const lost = plan.evicted.filter((each) => !plan.moved.some((move) => move.pod === each.pod));
    fill(state, [plan.placed.length && `${count(plan.placed.length, "pod")} placed`, moved.length && `${number(moved.length)} moved`, stayed && `${number(stayed)} made anew on the same node`, lost.length && `${number(lost.length)} gone from ${lost.length === 1 ? "its node" : "their nodes"}`, plan.kept.length && `${number(plan.kept.length)} cannot be evicted`, left ? `${number(left)} left over` : "nothing left over", waiting && `${number(waiting)} still pending`, plan.nodesAdded.length && `${count(plan.nodesAdded.length, "node")} added`].filter(Boolean).join(" · "));
    picture = before && after ? panes({ before, after, plan }) : null;
    fill(result,
      over.length > 0 && section("Left over", over.map(leftOver)),
      plan.kept.length > 0 && section("Cannot be evicted", list("Pods that cannot be evicted", plan.kept, [["Pod", (row) => name(row.pod), (row) => row.pod], ["Node", (row) => name(row.node), (row) => row.node], ["Why", (row) => name(row.reason), (row) => row.reason]])),
      picture ? picture.element : h("p", { class: "dim" }, TOO_MANY),
      moved.length > 0 && section("Moved", list("Moved pods", moved, [["Pod", (row) => name(row.pod), (row) => row.pod], ["From", (row) => name(row.fromNode), (row) => row.fromNode], ["To", (row) => name(row.toNode), (row) => row.toNode], ["Now called", (row) => name(row.replacement), (row) => row.replacement]])),
      plan.placed.length > 0 && section("Placed", list("Placed pods", plan.placed, [["Pod", (row) => name(row.pod), (row) => row.pod], ["Node", (row) => plan.nodesAdded.includes(row.node) ? name(`${row.node} (new)`) : link(address("map", { node: row.node }), row.node), (row) => row.node], ["Zone", (row) => name(row.zone || "–"), (row) => row.zone]])),
      differences && section("Placed differently by this configuration", differences.length
        ? list("Placed differently", differences, [["Pod", (row) => name(row.pod), (row) => row.pod], ["Now", (row) => name(row.before || "no node"), (row) => row.before], ["Then", (row) => name(row.after || "no node"), (row) => row.after]])
        : h("p", { class: "dim" }, "Every pod gets the same node.")),
      lost.length > 0 && section("Gone from their nodes", list("Pods gone from their nodes", lost, [["Pod", (row) => name(row.pod), (row) => row.pod], ["From", (row) => name(row.node), (row) => row.node], ["By", (row) => row.by, (row) => row.by], ["Comes back as", (row) => name(row.replacement || "–"), (row) => row.replacement]])),
      still.length > 0 && section("Pending before, and still", still.map(leftOver)),
      section("How full the cluster would be", h("table", { class: "plain" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Resource"), h("th", { scope: "col" }, "Before"), h("th", { scope: "col" }, "After"))),
        h("tbody", null, Object.entries(plan.after.resources).map(([resource, then]) => {
          const now = plan.before.resources[resource] || { requested: 0, allocatable: 0 };
          return h("tr", null, h("th", { scope: "row" }, resource), h("td", null, usage(resource, now.requested, now.allocatable)), h("td", null, usage(resource, then.requested, then.allocatable)));
        })))),
      plan.notes.length > 0 && section("Notes", h("ul", { class: "small" }, plan.notes.map((each) => h("li", null, each)))));
  }

  function list(label, rows, columns) {
    const table = virtualTable(label, columns.map(([heading, cell, value]) => ({ key: heading, title: heading, cell, value })));
    tables.push(table);
    table.element.classList.add("short");
    table.set(rows);
    return table.element;
  }

  const unsubscribe = subscribe((what) => { if (what === "nodes" && !inYaml && !Object.keys(changes).length) ask(); });
  // The cluster is loaded while the user reads the forms.
  post("api/whatif", { yaml: "", prepare: true }).catch(() => { /* the first question reports what is wrong */ });
  drawForms();
  if (store.nodes) loadPlacements().then(() => suggest(), () => { /* names can be typed */ });
  ask();
  return { stop() { stopped = true; unsubscribe(); askSoon.cancel(); if (asked) asked.abort(); drop(); hideTip(); }, table: () => null };
}

// -- before and after ------------------------------------------------------------------------------

// Both states with the nodes in the same places, and a line from where a pod was to where it would be.
function panes({ before, after, plan }) {
  const names = [...new Set([...before.nodes, ...(after ? after.nodes : [])].map((each) => each.name))].sort(natural);
  const states = [["Now", before], after && ["Then", after]].filter(Boolean).map(([label, placements]) => ({ label, nodes: new Map(placements.nodes.map((each) => [each.name, each])), pods: byNode(placements) }));
  const moved = new Map(), gone = new Set(), fresh = new Set();
  if (plan) {
    plan.evicted.forEach((each) => gone.add(each.pod));
    plan.moved.forEach((each) => { gone.delete(each.pod); if (each.fromNode !== each.toNode) moved.set(each.pod, each.replacement); });
    plan.placed.forEach((each) => fresh.add(each.pod));
  }
  let boxes = [new Map(), new Map()], pointed = "";
  const label = plan ? `Nodes with their pods now and then: ${count(moved.size, "pod")} moved, ${number(fresh.size)} placed, ${number(gone.size)} gone; the tables below say the same` : "Nodes with their pods";
  const made = canvasBox(label, draw);
  const side = () => made.box.clientWidth > 700, gap = 48, head = 22;

  function shape(width) {
    const parts = side() ? states.length : 1, pane = (width - gap * (parts - 1)) / parts;
    const columns = Math.max(1, Math.min(names.length, Math.round(Math.sqrt(names.length * 1.3)), Math.floor(pane / 34) || 1)), lines = Math.ceil(names.length / columns);
    const wide = pane / columns, high = Math.max(30, Math.min(130, wide * 0.9));
    return { pane, columns, lines, wide, high, tall: head + lines * high + 8 };
  }

  function fit() {
    const { tall } = shape(made.box.clientWidth || 800);
    made.box.style.height = `${Math.ceil(side() ? tall : tall * states.length)}px`;
  }
  const observer = new ResizeObserver(fit);
  observer.observe(made.box);

  function draw(context, width, height) {
    context.clearRect(0, 0, width, height);
    const { pane, columns, wide, high, tall } = shape(width);
    boxes = states.map((state, at) => {
      const left = side() ? at * (pane + gap) : 0, top = side() ? 0 : at * tall, found = new Map();
      context.fillStyle = css("--dim");
      context.font = "600 13px system-ui, sans-serif";
      context.textBaseline = "alphabetic";
      context.fillText(state.label, left, top + 14);
      names.forEach((each, i) => {
        const x = left + i % columns * wide, y = top + head + Math.floor(i / columns) * high, node = state.nodes.get(each);
        if (!node) {
          context.strokeStyle = css("--line");
          context.setLineDash([4, 4]);
          context.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, wide - 7, high - 7);
          context.setLineDash([]);
          return;
        }
        const whole = node.amounts["allocatable cpu"], drawn = podBoxes(state.pods.get(each) || [], whole, "cpu", x, y, wide - 6, high - 6);
        drawNode(context, { name: each, share: whole > 0 ? node.amounts["requested cpu"] / whole : -1, marks: flagTexts(node.flags).join(", ") }, drawn, x, y, wide - 6, high - 6);
        drawn.forEach((box) => found.set(box.pod.pod, box));
      });
      return found;
    });
    if (states.length < 2) return;
    for (const [pod, box] of boxes[0]) if (gone.has(pod)) mark(context, box, "--bad");
    for (const [pod, box] of boxes[1]) if (fresh.has(pod)) mark(context, box, "--good");
    let traced = 0;
    for (const [from, to] of moved) {
      const a = boxes[0].get(from), b = boxes[1].get(to);
      if (!a || !b || ++traced > MOST_TRACES) continue;
      mark(context, a, "--accent");
      mark(context, b, "--accent");
      // Of many lines, the one that is pointed at stands out.
      trace(context, a, b, pointed ? (pointed === from || pointed === to ? 1 : 0.08) : moved.size > MANY ? 0.25 : 0.7);
    }
  }

  function mark(context, { x, y, w, h: high }, colour) {
    // On a ground of the page's colour, so that it is seen on pods of any colour.
    for (const [each, width] of [["--page", 5], [colour, 2]]) {
      context.strokeStyle = css(each);
      context.lineWidth = width;
      context.strokeRect(x, y, Math.max(2, w - 1), Math.max(2, high - 1));
    }
  }

  function trace(context, a, b, strength) {
    const [x0, y0, x1, y1] = [a.x + a.w / 2, a.y + a.h / 2, b.x + b.w / 2, b.y + b.h / 2], bend = side() ? [(x1 - x0) / 2, 0] : [0, (y1 - y0) / 2];
    context.globalAlpha = strength;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend[0], y0 + bend[1], x1 - bend[0], y1 - bend[1], x1, y1);
    for (const [each, width] of [["--page", 4], ["--accent", 1.5]]) {
      context.strokeStyle = css(each);
      context.lineWidth = width;
      context.stroke();
    }
    context.fillStyle = css("--accent");
    context.beginPath();
    context.arc(x1, y1, 3, 0, 7);
    context.fill();
    context.globalAlpha = 1;
  }

  made.canvas.addEventListener("pointermove", (event) => {
    for (const [at, found] of boxes.entries()) for (const box of found.values()) {
      if (event.offsetX < box.x || event.offsetX >= box.x + box.w || event.offsetY < box.y || event.offsetY >= box.y + box.h) continue;
      if (pointed !== box.pod.pod) { pointed = box.pod.pod; made.redraw(); }
      const { pod } = box, to = at === 0 && moved.get(pod.pod);
      showTip(event.clientX, event.clientY, h("strong", null, name(pod.pod)), h("br"), "on ", name(pod.node), `, requests ${amount("cpu", pod.cpu)}, ${amount("memory", pod.memory)}`,
        to && [h("br"), "moves, and is then ", name(to)], at === 0 && gone.has(pod.pod) && [h("br"), "leaves its node"], at === 1 && fresh.has(pod.pod) && [h("br"), "is placed here"]);
      return;
    }
    leave();
  });
  function leave() { hideTip(); if (pointed) { pointed = ""; made.redraw(); } }
  made.canvas.addEventListener("pointerleave", leave);
  made.box.classList.add("panes");
  const keys = [...legendOf(after || before), ...(plan ? [["--accent", "moved", "ring"], ["--good", "placed", "ring"], ["--bad", "gone", "ring"]] : [])];
  const element = h("figure", { class: "panesbox" }, made.box, h("figcaption", { class: "legend" }, "The area of a pod is its share of the node's cpu.",
    keys.map(([colour, text, shape_]) => h("span", { class: "key" }, h("i", { class: shape_ || "", style: shape_ ? { "border-color": css(colour) } : { background: colour } }), text))));
  return { element, stop() { observer.disconnect(); made.stop(); } };
}

// demo/Deployment/web -> deployment/demo/web, as kubectl and plan write it.
function asArgument(workload) {
  const [namespace, kind, own] = workload.split("/");
  return `${kind.toLowerCase()}/${namespace}/${own}`;
}

function leftOver(each) {
  const others = each.pods.length > 1 && ` and ${number(each.pods.length - 1)} more`;
  return h("p", { class: "left" }, h("strong", null, name(each.pods[0]), others), " ", each.stop.message ? h("span", { title: each.stop.message }, sentence(each.stop.message), ".") : each.stop.summary);
}

function section(text, ...children) { return h("section", null, h("h3", null, text), children); }
