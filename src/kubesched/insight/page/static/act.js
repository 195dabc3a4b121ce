// What can be done to the playground, each with the kubectl command that does the same.
import { button, debounced, fill, h, name, select } from "./dom.js";
import { command } from "./decision.js";
import { count, number } from "./format.js";
import { getJson, post, store, subscribe } from "./store.js";
import { TEMPLATES } from "./templates.js";

export const title = "Act";
export const hint = "Change the playground and watch the scheduler react. Every button shows the kubectl command that does the same.";

// Words as a shell reads them back: the command that is shown is the one that is run.
export function kubectl(...words) {
  return { action: "run", commands: [["kubectl", ...words].map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`)).join(" ")] };
}

// A form whose command is shown before it is run.
function form(read, label, fields, done) {
  const shown = h("div", { class: "preview" }), said = h("p", { class: "small", role: "status" });
  const preview = debounced(async () => {
    try { fill(shown, command((await post("api/act", { ...read(), preview: true })).command)); fill(said); }
    catch (error) { fill(said, h("span", { class: "error" }, error.message)); }
  }, 150);
  const run = button(label, async () => {
    try {
      await post("api/act", read());
      fill(said, h("span", { class: "good" }, "Done."));
      dispatchEvent(new Event("acted"));
      if (done) done();
    } catch (error) { fill(said, h("span", { class: "error" }, error.message)); }
  }, { class: "primary" });
  const element = h("div", { class: "form", oninput: preview, onchange: preview }, h("div", { class: "bar" }, fields, run, said), shown);
  preview();
  return element;
}

function field(label, attributes) {
  const input = h("input", attributes);
  return [input, h("label", { class: "field" }, h("span", null, label), input)];
}

export function nodeActions(node, done) {
  const cordon = node.cordoned ? "uncordon" : "cordon";
  const [key, keyField] = field("Key", { value: "dedicated", size: 10 }), [value, valueField] = field("Value", { value: "batch", size: 8 });
  const effect = h("select", null, ["NoSchedule", "PreferNoSchedule", "NoExecute"].map((each) => h("option", { value: each }, each)));
  return h("details", { class: "acts" }, h("summary", null, "Cordon or taint this node"),
    form(() => kubectl(cordon, node.name), cordon === "cordon" ? "Cordon" : "Uncordon", [], done),
    form(() => kubectl("taint", "node", node.name, `${key.value}${value.value && `=${value.value}`}:${effect.value}`, "--overwrite"), "Taint", [keyField, valueField, h("label", { class: "field" }, h("span", null, "Effect"), effect)], done),
    node.taints.map((each) => form(() => kubectl("taint", "node", node.name, `${each}-`), `Remove ${each}`, [], done)));
}

export function show(main) {
  let stopped = false;
  const scaling = h("div", null, h("p", { class: "loading" }, "Loading…"));
  const nodes = field("How many", { type: "number", min: 1, max: 1000, value: 3 });
  const text = h("textarea", { rows: 14, spellcheck: false, "aria-label": "Objects to create, as YAML" });
  text.value = TEMPLATES["10 replicas"];
  const template = select("Template", Object.keys(TEMPLATES).map((each) => [each, each]), "10 replicas", (key) => { text.value = TEMPLATES[key]; text.dispatchEvent(new Event("input", { bubbles: true })); });
  if (!store.meta.canAct) {
    fill(main, h("h2", null, title), h("p", { class: "empty" }, "Only a playground (kubesched up) can be changed from here."));
    return { stop() {}, table: () => null };
  }
  const counts = h("p", { class: "summary" });
  fill(main, h("div", { class: "head" }, h("h2", null, title), counts),
    h("section", null, h("h3", null, "Scale a deployment"), scaling),
    h("section", null, h("h3", null, "Create pods from a template"), h("div", { class: "bar" }, template), text, form(() => ({ action: "apply", yaml: text.value }), "Create", [], loadWorkloads)),
    h("section", null, h("h3", null, "Add nodes"), form(() => ({ action: "add-nodes", count: Number(nodes[0].value) }), "Add nodes", [nodes[1]])),
    h("section", null, h("h3", null, "Cordon or taint a node"), h("p", { class: "dim" }, "Open the node on the ", h("a", { href: "#/map" }, "map"), ".")));
  // The template's own form previews what is typed above it.
  text.addEventListener("input", () => text.parentElement.querySelector(".form").dispatchEvent(new Event("input")));

  // Rows stay while their counts follow: what is typed into them must not be lost.
  const rows = new Map();
  async function loadWorkloads() {
    try {
      const { workloads } = await getJson("api/workloads");
      if (stopped) return;
      const keys = workloads.map((each) => `${each.namespace}/${each.name}`);
      if (!rows.size || keys.length !== rows.size || keys.some((each) => !rows.has(each))) {
        for (const key of [...rows.keys()]) if (!keys.includes(key)) rows.delete(key);
        workloads.forEach((each, at) => { if (!rows.has(keys[at])) rows.set(keys[at], row(each)); });
        fill(scaling, keys.length ? keys.map((each) => rows.get(each).element) : h("p", { class: "empty" }, "There are no deployments. Create one below."));
      }
      workloads.forEach((each, at) => rows.get(keys[at]).count(each));
    } catch (error) { if (!stopped) { rows.clear(); fill(scaling, h("p", { class: "error" }, error.message)); } }
  }

  function row(each) {
    const [replicas, replicasField] = field("Replicas", { type: "number", min: 0, max: 10000, value: each.replicas }), ready = h("span", { class: "dim", role: "status" });
    return {
      element: h("div", { class: "workload" }, h("p", null, h("strong", null, name(`${each.namespace}/${each.name}`)), " ", ready),
        form(() => kubectl("scale", `deployment/${each.name}`, "-n", each.namespace, `--replicas=${replicas.value}`), "Scale", [replicasField])),
      count(now) {
        const text = `${number(now.ready)} of ${count(now.replicas, "replica")} ready`;
        if (ready.textContent !== text) fill(ready, text);
      },
    };
  }

  function drawCounts() {
    const nodes = store.nodes, pods = nodes ? nodes.columns["requested pods"].reduce((sum, each) => sum + each, 0) : 0;
    fill(counts, nodes ? [count(nodes.length, "node"), `${count(pods, "pod")} placed`, `${number(store.queueSize)} waiting`].join(" · ") : "");
  }

  // The stream tells of placed pods at once; that a pod is ready changes nothing for the scheduler, so it is asked for.
  const soon = debounced(loadWorkloads, 150), clock = setInterval(() => { if (!document.hidden) loadWorkloads(); }, 1500);
  const unsubscribe = subscribe((what) => { if (["changed", "nodes", "queue"].includes(what)) { drawCounts(); soon(); } });
  addEventListener("acted", soon);
  drawCounts();
  loadWorkloads();
  return { stop() { stopped = true; unsubscribe(); removeEventListener("acted", soon); soon.cancel(); clearInterval(clock); }, table: () => null };
}
