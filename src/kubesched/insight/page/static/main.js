// Views by address, and what surrounds them: navigation, search, theme, messages.
import { button, fill, forgetColours, h } from "./dom.js";
import { exportView } from "./export.js";
import { number, time } from "./format.js";
import { address, amend, current } from "./route.js";
import { openSearch } from "./search.js";
import { loadNodes, setToken, start, startNodes, store, subscribe, takesToken } from "./store.js";
import * as act from "./act.js";
import * as decision from "./decision.js";
import * as decisions from "./decisions.js";
import * as map from "./map.js";
import * as queue from "./queue.js";
import * as whatif from "./whatif.js";

const VIEWS = { map, queue, decisions, decision, whatif, act };
const main = document.getElementById("main"), nav = document.getElementById("nav"), tools = document.getElementById("tools"), status = document.getElementById("status");
let shown = null, shownKey = "", started = false;

function remembered(key) { try { return localStorage.getItem(`kubesched.${key}`); } catch { return null; } }
function remember(key, value) { try { localStorage.setItem(`kubesched.${key}`, value); } catch { /* storage may be off: then nothing is remembered */ } }

// -- theme --------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  forgetColours();
  remember("theme", theme);
  refresh("theme");
}
document.documentElement.dataset.theme = remembered("theme") || "";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetColours(); refresh("theme"); });

function refresh() { if (started) render(true); }

// -- surroundings -------------------------------------------------------------------------------

function drawNav() {
  const { view } = current();
  nav.dataset.waiting = store.queueSize;
  const keys = Object.keys(VIEWS).filter((key) => key !== "act" || (store.meta && store.meta.canAct));
  fill(nav, keys.map((key) => h("a", { href: address(key), "aria-current": key === view ? "page" : null }, VIEWS[key].title, key === "queue" && store.queueSize > 0 && h("span", { class: "badge figures" }, number(store.queueSize)))));
}

function drawTools() {
  const dark = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  fill(tools,
    button([h("span", null, "Search "), h("kbd", null, "/")], openSearch, { "aria-keyshortcuts": "/" }),
    button("Export", () => exportView(main, shown), { title: "Save this view as one HTML file" }),
    button(dark === "dark" ? "Light" : "Dark", () => { setTheme(dark === "dark" ? "light" : "dark"); drawTools(); }, { title: "Switch between light and dark" }),
    h("span", { class: `live is-${inThePast() ? "past" : store.connection}`, title: store.meta ? store.meta.title : "" }, inThePast() ? "in the past" : { live: "live", still: "not live", lost: "offline", expired: "signed out", connecting: "…" }[store.connection]));
}

function inThePast() { return Boolean(Number(current().params.get("at"))); }

function drawStatus() {
  const at = Number(current().params.get("at"));
  document.body.classList.toggle("past", inThePast());
  drawTools();
  const parts = [];
  if (store.connection === "lost" || store.connection === "expired") parts.push(h("span", null, store.message));
  if (at) parts.push(h("span", null, "You see the cluster as it was at ", h("strong", null, time(at)), ". "), button(store.meta && store.meta.live ? "Back to now" : "Go to the end", () => { amend({ at: "" }); moment(); }));
  status.hidden = !parts.length;
  status.className = `status ${store.connection === "lost" || store.connection === "expired" ? "warn" : "past"}`;
  fill(status, parts);
}

function hintFor(view) {
  const key = `hint.${view}`;
  if (remembered(key)) return null;
  const box = h("aside", { class: "hint", "aria-label": "What you see" }, h("p", null, VIEWS[view].hint), button("Got it", () => { remember(key, "seen"); box.remove(); }));
  return box;
}

// -- views --------------------------------------------------------------------------------------

function render(force) {
  const { view, params } = current(), key = location.hash;
  if (!force && key === shownKey) return;
  shownKey = key;
  if (shown) shown.stop();
  const known = VIEWS[view];
  drawNav();
  drawStatus();
  document.title = `${known ? known.title : "Not found"} · kubesched`;
  const hint = known && hintFor(view), body = h("div", { class: `view ${view}` });
  fill(main, hint, body);
  if (!known) {
    fill(body, h("h2", null, "Not found"), h("p", null, "There is no such view. ", h("a", { href: "#/map" }, "Go to the map")));
    shown = null;
    return;
  }
  shown = known.show(body);
}

// Another moment: the nodes on the map are of that moment.
async function moment() {
  drawStatus();
  drawNav();
  try { await loadNodes(); } catch (error) { store.message = error.message; }
  if (!current().view.startsWith("decisions")) render(true);
}

addEventListener("moment", moment);
addEventListener("hashchange", () => { if (started) render(); });
addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); openSearch(); }
});
subscribe((what) => {
  if (what === "connection" || what === "meta") drawStatus();
  if (what === "queue" && nav.dataset.waiting !== String(store.queueSize) && !nav.contains(document.activeElement)) drawNav();
});

drawNav();
drawTools();

async function begin() {
  try {
    await start();
    started = true;
    drawNav();
    render(true);
    await startNodes();
  } catch (error) {
    if (takesToken && [401, 403].includes(error.status)) { askForToken(error.message); return; }
    fill(main, h("div", { class: "view" }, h("h2", null, error.status === 401 ? "Please open the link" : "The page cannot be shown"), h("p", { class: "error" }, error.message)));
  }
}

function askForToken(why) {
  const input = h("input", { type: "password", autocomplete: "off", size: 40 });
  const open = () => { setToken(input.value.trim()); begin(); };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  fill(main, h("div", { class: "view" }, h("h2", null, "Who are you?"), h("p", null, "This scheduler shows its page to those who may list pods in all namespaces. Paste a token of yours, or of the page's service account:"),
    h("pre", null, "kubectl create token kubesched-page --namespace kube-system"),
    h("div", { class: "bar" }, h("label", { class: "field" }, h("span", null, "Token"), input), button("Open", open, { class: "primary" })), h("p", { class: "error", role: "status" }, why)));
  input.focus();
}

await begin();
