// The address holds the whole state: #/view?key=value. Deep links and the back button follow from it.

export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "map", params: new URLSearchParams(query || "") };
}

export function address(view, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) if (value !== "" && value !== null && value !== undefined) query.set(key, value);
  // The moment that is looked at goes along to every view.
  const at = current().params.get("at");
  if (at && !(params && "at" in params)) query.set("at", at);
  const text = query.toString();
  return `#/${view}${text ? "?" + text : ""}`;
}

export function go(view, params) { location.hash = address(view, params); }

// Changes parameters of the present view without an entry in the history.
export function amend(changes) {
  const { view, params } = current();
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) params.delete(key);
    else params.set(key, value);
  }
  const text = params.toString();
  history.replaceState(null, "", `#/${view}${text ? "?" + text : ""}`);
}
