// What the server said: nodes in columns, decisions, counts of the queue; and the stream that keeps them current.
import { texts, unpack } from "./columns.js";
import { current } from "./route.js";

export const store = {
  meta: null, nodes: null, decisions: null, placements: null, queue: {}, connection: "connecting", message: "", changed: new Map(), loaded: 0,
  get queueSize() { return Object.values(this.queue).reduce((sum, each) => sum + each, 0); },
};
const listeners = new Set();

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(what) { for (const listener of [...listeners]) listener(what); }

export class Failure extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

// On a scheduler's secure port the browser has no cookie: a bearer token is asked for and kept for this tab.
const TOKEN = "kubesched.token";
export const takesToken = location.pathname.startsWith("/debug/page");

function token() { try { return takesToken && sessionStorage.getItem(TOKEN) || ""; } catch { return ""; } }
export function setToken(text) { try { sessionStorage.setItem(TOKEN, text); } catch { /* storage may be off: it is asked for again */ } }

async function ask(path, options = {}) {
  let response;
  const headers = { ...options.headers, ...(token() ? { Authorization: `Bearer ${token()}` } : {}) };
  try {
    response = await fetch(path, { credentials: "same-origin", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  let message = response.statusText;
  try { message = (await response.json()).message || message; } catch { /* not JSON: the status line says enough */ }
  if (response.status === 401) setConnection("expired", message);
  throw new Failure(response.status, message);
}

export function query(path, params) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) if (value !== undefined && value !== null && value !== "") search.set(key, value);
  const at = current().params.get("at");
  if (at && !search.has("at")) search.set("at", at);
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

export async function getJson(path, params, options) { return (await ask(query(path, params), options)).json(); }

export async function getColumns(path, params, options, onpart) {
  const response = await ask(query(path, params), options);
  return unpack(onpart ? await inParts(response, onpart) : await response.arrayBuffer());
}

// The body, and how much of it has come, for a sign of loading.
async function inParts(response, onpart) {
  const whole = Number(response.headers.get("Content-Length")), reader = response.body.getReader(), parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    onpart(whole ? size / whole : 0);
  }
  return new Blob(parts).arrayBuffer();
}

export async function post(path, body, options) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body), ...options })).json();
}

// -- nodes --------------------------------------------------------------------------------------

export class Nodes {
  constructor({ header, columns }) {
    this.id = header.id || "";
    this.resources = header.resources;
    this.zones = header.zones;
    this.labelKeys = header.labelKeys;
    this.columns = columns;
    this.names = texts(columns.name);
    this.rows = columns.row;
    this.length = this.rows.length;
    this.labels = new Map();
    let top = -1;
    for (const row of this.rows) if (row > top) top = row;
    this.indexOfRow = new Int32Array(top + 1).fill(-1);
    for (let i = 0; i < this.length; i++) this.indexOfRow[this.rows[i]] = i;
  }

  share(resource, i) {
    const whole = this.columns[`allocatable ${resource}`][i];
    return whole > 0 ? this.columns[`requested ${resource}`][i] / whole : -1;
  }

  zone(i) { const id = this.columns.zone[i]; return id < 0 ? "" : this.zones[id]; }

  flags(i) { return this.columns.flags[i]; }

  indexOf(name) {
    if (!this.byName) this.byName = new Map(this.names.map((each, i) => [each, i]));
    return this.byName.has(name) ? this.byName.get(name) : -1;
  }

  async loadLabel(key) {
    if (!this.labels.has(key)) {
      const { header, columns } = await getColumns("api/labels", { key });
      const ids = new Int32Array(this.length).fill(-1);
      for (let i = 0; i < columns.row.length; i++) {
        const at = this.indexOfRow[columns.row[i]];
        if (at >= 0) ids[at] = columns.value[i];
      }
      this.labels.set(key, { ids, values: header.values });
    }
    return this.labels.get(key);
  }

  // Whether rows still stand for the nodes they stood for; labels are fetched again.
  knows(identities) {
    this.labels.clear();
    return identities.every(([row, name, zone]) => {
      const i = row < this.indexOfRow.length ? this.indexOfRow[row] : -1;
      return i < 0 ? !name : this.names[i] === name && this.columns.zone[i] === zone;
    });
  }

  // Applies changed rows of the stream; returns the indices.
  apply(rows) {
    const touched = [];
    for (let k = 0; k < rows.row.length; k++) {
      const i = this.indexOfRow[rows.row[k]];
      if (i === undefined || i < 0) continue;
      touched.push(i);
      for (const name in rows) if (name !== "row" && this.columns[name]) this.columns[name][i] = rows[name][k];
    }
    return touched;
  }
}

let loading = null, loadingAt = "";

export function loadNodes() {
  const at = current().params.get("at") || "";
  if (!loading || loadingAt !== at) {
    const mine = fetchNodes(at).finally(() => { if (loading === mine) loading = null; });
    loading = mine;
    loadingAt = at;
  }
  return loading;
}

async function fetchNodes(at) {
  store.loaded = 0;
  const nodes = new Nodes(await getColumns("api/nodes", { at }, {}, (share) => { store.loaded = share; tell("loading"); }));
  if ((current().params.get("at") || "") === at) {
    store.nodes = nodes;
    tell("nodes");
  }
  return nodes;
}

// Pods on nodes, while a screen has room for them; null for larger clusters.
const MOST_DRAWN = 200;

export async function loadPlacements() {
  store.placements = store.nodes && store.nodes.length <= MOST_DRAWN ? await getJson("api/placements") : null;
  return store.placements;
}

// -- decisions ----------------------------------------------------------------------------------

const KEPT = 10000;

export async function loadDecisions() {
  const { fields, rows, count } = await getJson("api/decisions", { at: "" });
  store.decisions = rows.map((row) => record(fields, row));
  store.fields = fields;
  store.decisionCount = count;
  tell("decisions");
  return store.decisions;
}

function record(fields, row) {
  const made = {};
  fields.forEach((field, i) => { made[field] = row[i]; });
  return made;
}

// -- the stream ---------------------------------------------------------------------------------

function setConnection(state, message) {
  if (store.connection === state && store.message === (message || "")) return;
  store.connection = state;
  store.message = message || "";
  tell("connection");
}

// Views can be drawn as soon as it is known what is looked at; nodes follow.
export async function start() {
  store.meta = await getJson("api/meta", { at: "" });
  tell("meta");
}

export async function startNodes() {
  await loadNodes();
  if (store.meta.live) openStream();
  else setConnection("still");
}

// Server-sent events, read by fetch: an EventSource cannot send a token.
let following = 0;

async function openStream() {
  const mine = ++following;
  let id = store.nodes ? store.nodes.id : "", wait = 0;
  while (mine === following) {
    try {
      const response = await ask(`api/events?since=${encodeURIComponent(id)}`);
      if (response.status === 204) return;
      setConnection("live");
      wait = 0;
      await readEvents(response, (event) => {
        id = event.id || id;
        if (event.event === "reset") reload();
        else if (event.event === "update") update(JSON.parse(event.data));
      });
    } catch (error) {
      if (store.connection === "expired") return;
      if (error instanceof SyntaxError) throw error;
    }
    setConnection("lost", "Connection lost. Trying again…");
    wait = Math.min(10000, (wait || 500) * 2);
    await new Promise((done) => { setTimeout(done, wait); });
    try { store.meta = await getJson("api/meta", { at: "" }); } catch { /* the stream fails as well, and tries again */ }
  }
}

async function readEvents(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) each(Object.fromEntries(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trimStart()])));
  }
}

async function reload() {
  try {
    if (!current().params.get("at")) await loadNodes();
    if (store.decisions) await loadDecisions();
    tell("queue");
  } catch { /* the stream's own error handling reports it and tries again */ }
}

let reloadTimer = 0;

function update(change) {
  const inThePast = Boolean(current().params.get("at"));
  if (change.identities && store.nodes && !inThePast && !store.nodes.knows(change.identities)) change.reload = true;
  if (change.reload && !reloadTimer) {
    reloadTimer = setTimeout(() => {
      reloadTimer = 0;
      if (!current().params.get("at")) loadNodes().catch(() => { /* the stream reports what is wrong */ });
    }, 300);
  }
  if (change.nodes && store.nodes && !inThePast) {
    const touched = store.nodes.apply(change.nodes), now = performance.now();
    for (const i of touched) store.changed.set(i, now);
    tell("changed");
  }
  if (change.decisions && store.decisions) {
    if (change.missed) loadDecisions().catch(() => { /* as above */ });
    else {
      for (const row of change.decisions) store.decisions.push(record(store.fields, row));
      if (store.decisions.length > KEPT * 1.1) store.decisions.splice(0, store.decisions.length - KEPT);
      tell("decisions");
    }
  }
  if (change.queue) store.queue = change.queue;
  if (change.queue || change.decisions) tell("queue");
}
