// What would happen: objects on the left, the scheduler's answer on the right.
import { debounced, fill, h, link, name, select } from "./dom.js";
import { amount, count, number, percent } from "./format.js";
import { address, amend, current } from "./route.js";
import { usage } from "./map.js";
import { post } from "./store.js";
import { TEMPLATES, WHAT_IF_ONLY } from "./templates.js";
import { virtualTable } from "./table.js";

export const title = "What if";
export const hint = "Write pods, workloads, nodes or a configuration on the left; on the right is where the scheduler would put everything. Nothing is changed.";

const ALL = { ...TEMPLATES, ...WHAT_IF_ONLY };
const DELAY = 80, LONGEST_LINK = 6000;

export function show(main) {
  let stopped = false, asked = null, tables = [];
  const editor = h("textarea", { id: "yaml", spellcheck: false, "aria-label": "Objects as YAML", rows: 24, oninput: () => changed() });
  editor.value = current().params.get("yaml") || ALL["10 replicas"];
  const result = h("div", { class: "result", "aria-live": "polite" }), state = h("p", { class: "summary" });
  const examples = select("Example", [["", "choose…"], ...Object.keys(ALL).map((each) => [each, each])], "", (key) => { if (key) { editor.value = ALL[key]; changed(); } });
  fill(main, h("div", { class: "head" }, h("h2", null, title), state), h("div", { class: "bar" }, examples),
    h("div", { class: "halves" }, h("div", null, editor), result));
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      editor.setRangeText("  ", editor.selectionStart, editor.selectionEnd, "end");
      changed();
    } else if (event.key === "Escape") editor.blur();
  });

  const ask = debounced(async () => {
    if (asked) asked.abort();
    const mine = asked = new AbortController();
    const yaml = editor.value, began = performance.now(), at = Number(current().params.get("at"));
    if (!yaml.trim()) { fill(state, "Nothing asked"); fill(result, h("p", { class: "empty" }, "Write an object, or choose an example.")); return; }
    amend({ yaml: yaml.length <= LONGEST_LINK ? yaml : "" });
    result.classList.add("old");
    try {
      const answer = await post("api/whatif", { yaml, ...(at ? { at } : {}) }, { signal: mine.signal });
      if (stopped || mine !== asked) return;
      draw(answer);
      result.dataset.milliseconds = String(Math.round(performance.now() - began));
    } catch (error) {
      if (error.name === "AbortError" || stopped) return;
      fill(state, "");
      fill(result, h("p", { class: "error" }, error.message));
    } finally { if (mine === asked) { result.classList.remove("old"); result.dataset.done = String(Number(result.dataset.done || 0) + 1); } }
  }, DELAY);
  function changed() { ask(); }

  function draw({ plan, differences }) {
    tables.forEach((each) => each.stop());
    tables = [];
    const [before, over] = [true, false].map((pending) => plan.unplaced.filter((each) => each.wasPending === pending));
    const [still, left] = [before, over].map((groups) => groups.reduce((sum, each) => sum + each.pods.length, 0));
    fill(state, [`${count(plan.placed.length, "pod")} placed`, plan.moved.length && `${number(plan.moved.length)} moved`, plan.evicted.length && `${number(plan.evicted.length)} evicted`, left ? `${number(left)} left over` : "nothing left over", still && `${number(still)} still pending`, plan.nodesAdded.length && `${count(plan.nodesAdded.length, "node")} added`].filter(Boolean).join(" · "));
    fill(result,
      differences && section("Placed differently by this configuration", differences.length
        ? list("Placed differently", differences, [["Pod", (row) => name(row.pod), (row) => row.pod], ["Now", (row) => name(row.before || "no node"), (row) => row.before], ["Then", (row) => name(row.after || "no node"), (row) => row.after]])
        : h("p", { class: "dim" }, "Every pod gets the same node.")),
      over.length > 0 && section("Left over", over.map(leftOver)),
      plan.placed.length > 0 && section("Placed", list("Placed pods", plan.placed, [["Pod", (row) => name(row.pod), (row) => row.pod], ["Node", (row) => plan.nodesAdded.includes(row.node) ? name(`${row.node} (new)`) : link(address("map", { node: row.node }), row.node), (row) => row.node], ["Zone", (row) => name(row.zone || "–"), (row) => row.zone]])),
      plan.evicted.length > 0 && section("Evicted", list("Evicted pods", plan.evicted, [["Pod", (row) => name(row.pod), (row) => row.pod], ["From", (row) => name(row.node), (row) => row.node], ["By", (row) => row.by, (row) => row.by], ["Comes back as", (row) => name(row.replacement || "–"), (row) => row.replacement]])),
      before.length > 0 && section("Pending before, and still", before.map(leftOver)),
      section("How full the cluster would be", h("table", { class: "plain" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Resource"), h("th", { scope: "col" }, "Before"), h("th", { scope: "col" }, "After"))),
        h("tbody", null, Object.entries(plan.after.resources).map(([resource, after]) => {
          const before = plan.before.resources[resource] || { requested: 0, allocatable: 0 };
          return h("tr", null, h("th", { scope: "row" }, resource), h("td", null, usage(resource, before.requested, before.allocatable)), h("td", null, usage(resource, after.requested, after.allocatable)));
        })))),
      plan.notes.length > 0 && section("Notes", h("ul", { class: "small" }, plan.notes.map((each) => h("li", null, each)))));
  }

  function list(label, rows, columns) {
    const table = virtualTable(label, columns.map(([title, cell, value]) => ({ key: title, title, cell, value })));
    tables.push(table);
    table.element.classList.add("short");
    table.set(rows);
    return table.element;
  }

  // The cluster is loaded while the user types the first word.
  post("api/whatif", { yaml: "", prepare: true }).catch(() => { /* the first question reports what is wrong */ });
  ask();
  return { stop() { stopped = true; ask.cancel(); if (asked) asked.abort(); tables.forEach((each) => each.stop()); }, table: () => null };
}

function leftOver(each) {
  const others = each.pods.length > 1 && ` and ${number(each.pods.length - 1)} more`;
  return h("div", { class: "left" }, h("p", null, h("strong", null, name(each.pods[0]), others)), h("p", null, each.stop.summary), each.stop.message && h("p", { class: "quote" }, each.stop.message));
}

function section(text, ...children) { return h("section", null, h("h3", null, text), children); }
