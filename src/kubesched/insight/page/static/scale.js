// Colour scales: cividis for amounts, which people with colour vision deficiencies read as well, and its legend.
import { css, h } from "./dom.js";

const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

// 256 steps as 32-bit pixels (little endian) and as CSS colours.
export const STEPS = new Uint32Array(256);
export const COLOURS = [];
for (let step = 0; step < 256; step++) {
  const at = step / 255 * (CIVIDIS.length - 1), low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const [r, g, b] = CIVIDIS[low].map((from, i) => Math.round(from + (CIVIDIS[low + 1][i] - from) * (at - low)));
  STEPS[step] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  COLOURS.push(`rgb(${r},${g},${b})`);
}

export function step(share) {
  return share >= 1 ? 255 : share > 0 ? Math.round(share * 255) : 0;
}

// White or black, whichever is read more easily on a step.
export function ink(at) { return at > 128 ? "#101418" : "#fff"; }

export function pixel(colour) {
  const match = /^#(..)(..)(..)$/.exec(colour);
  if (!match) return 0xff808080;
  const [r, g, b] = match.slice(1).map((hex) => parseInt(hex, 16));
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

export function legend(title, low, high, extra) {
  const bar = h("canvas", { class: "bar", width: 256, height: 1, "aria-hidden": "true" });
  const context = bar.getContext("2d"), image = context.createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(STEPS);
  context.putImageData(image, 0, 0);
  return h("div", { class: "legend" }, h("span", null, title), h("span", { class: "figures" }, low), bar,
    h("span", { class: "figures" }, high),
    (extra || []).map(([colour, text, mark]) =>
      h("span", { class: "key" }, h("i", { class: mark || "", style: { background: css(colour) || colour } }), text)));
}
