// `/` opens a search over the names of nodes and pods.
import { debounced, fill, h, name } from "./dom.js";
import { address } from "./route.js";
import { getJson, store } from "./store.js";

const dialog = document.getElementById("dialog");
const LIMIT = 20;

export function openSearch() {
  if (dialog.open) return;
  let found = [], at = 0, asked = 0;
  const input = h("input", { type: "search", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-label": "Search nodes and pods", placeholder: "Node, pod, or attempt number", autocomplete: "off" });
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found" });
  const note = h("p", { class: "dim small" }, "Type a part of a name.");
  fill(dialog, input, list, note);
  dialog.showModal();
  input.focus();

  function draw() {
    fill(list, found.map((each, i) => h("li", { role: "option", id: `found-${i}`, "aria-selected": String(i === at), onclick: () => choose(i) }, h("span", { class: "dim" }, each.kind, " "), name(each.text), each.more && h("span", { class: "dim" }, " ", name(each.more)))));
    if (found.length) input.setAttribute("aria-activedescendant", `found-${at}`);
    else input.removeAttribute("aria-activedescendant");
    const chosen = list.children[at];
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
  }

  function choose(i) {
    dialog.close();
    if (found[i]) location.hash = found[i].href;
  }

  const search = debounced(async () => {
    const text = input.value.trim().toLowerCase(), mine = ++asked;
    at = 0;
    if (!text) { found = []; fill(note, "Type a part of a name."); draw(); return; }
    const nodes = [];
    for (const each of store.nodes ? store.nodes.names : []) {
      if (each.toLowerCase().includes(text)) nodes.push({ kind: "node", text: each, href: address("map", { node: each }) });
      if (nodes.length >= LIMIT) break;
    }
    const attempts = /^\d+$/.test(text) && store.decisions ? store.decisions.filter((each) => each.number === Number(text)).map((each) => ({ kind: "attempt", text: String(each.number), more: each.pod, href: address("decision", { pod: each.pod, number: each.number, attempt: store.meta.span ? each.number : "" }) })) : [];
    found = [...attempts, ...nodes];
    draw();
    try {
      const { pods } = await getJson("api/pods", { contains: text });
      if (mine !== asked) return;
      found = [...attempts, ...nodes.slice(0, pods.length ? LIMIT / 2 : LIMIT), ...pods.map(([pod, node]) => ({ kind: "pod", text: pod, more: node ? `on ${node}` : "waiting", href: address("decision", { pod }) }))].slice(0, 2 * LIMIT);
      fill(note, found.length ? "Arrow keys choose, Enter opens." : "No name contains that.");
      draw();
    } catch (error) { fill(note, error.message); }
  }, 120);

  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Enter") { event.preventDefault(); choose(at); }
    else if (event.key === "Escape") { event.preventDefault(); dialog.close(); } // a search field would only be cleared
  });
}

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
