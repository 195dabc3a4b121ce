// Elements without HTML text: names come from the cluster and are only ever set as text.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name in element && typeof value !== "string" && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// A name that may be cut off: isolated, so that right-to-left text does not reorder its surroundings, and whole on hover and focus.
export function name(text, attributes) {
  return h("bdi", { class: "name", title: text, ...attributes }, text);
}

export function link(href, text, attributes) {
  return h("a", { href, title: text, ...attributes }, h("bdi", { class: "name" }, text));
}

export function button(text, onclick, attributes) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

export function select(label, options, value, onchange) {
  const control = h("select", { onchange: () => onchange(control.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return h("label", { class: "field" }, h("span", null, label), control);
}

// Calls at most once per frame.
export function perFrame(work) {
  let wanted = false;
  return () => {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => { wanted = false; work(); });
  };
}

export function debounced(work, delay) {
  let timer = 0;
  const run = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), delay);
  };
  run.cancel = () => clearTimeout(timer);
  return run;
}

// A canvas that fills its box at the screen's resolution; `draw(context, width, height)` in CSS pixels.
export function canvasBox(label, draw, attributes) {
  const canvas = h("canvas", { "aria-label": label, tabindex: "0", role: "img", ...attributes });
  const box = h("div", { class: "canvas" }, canvas);
  const redraw = perFrame(() => {
    const width = box.clientWidth, height = box.clientHeight, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(context, width, height);
  });
  const observer = new ResizeObserver(redraw);
  observer.observe(box);
  return { box, canvas, redraw, stop: () => observer.disconnect() };
}

const colours = new Map();

// A colour of the theme in force.
export function css(variable) {
  if (!colours.has(variable)) colours.set(variable, getComputedStyle(document.documentElement).getPropertyValue(variable).trim());
  return colours.get(variable);
}

export function forgetColours() { colours.clear(); }

const tip = document.getElementById("tip");

export function showTip(x, y, ...children) {
  fill(tip, children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 8))}px`;
}

export function hideTip() { tip.hidden = true; }
