// The present view as one HTML file: pictures as data, tables in full, styles inside, no scripts.
import { h } from "./dom.js";
import { store } from "./store.js";

const MOST_ROWS = 5000;

export async function exportView(main, view) {
  const copy = main.cloneNode(true);
  const pictures = main.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((canvas, i) => {
    const picture = h("img", { alt: canvas.getAttribute("aria-label") || "" });
    picture.src = pictures[i].toDataURL("image/png");
    picture.style.width = `${pictures[i].clientWidth}px`;
    canvas.replaceWith(picture);
  });
  const fields = main.querySelectorAll("textarea");
  copy.querySelectorAll("textarea").forEach((area, i) => area.replaceWith(h("pre", null, fields[i].value)));
  copy.querySelectorAll("button, select, input, .hint, .preview, .acts, label").forEach((each) => each.remove());
  const table = view && view.table && view.table();
  const box = table && copy.querySelector(".tablebox");
  if (box && table.rows().length) box.replaceWith(wholeTable(table));
  copy.querySelectorAll("a").forEach((each) => each.replaceWith(...each.childNodes));
  const sheets = await Promise.all(["theme", "style"].map(async (each) => (await fetch(`static/${each}.css`)).text()));
  const style = sheets.join("\n");
  // As text: a style element made here would be subject to this page's own policy.
  const body = h("body", { class: "exported" }, h("p", { class: "dim" }, `${store.meta.title}, ${new Date().toISOString()}, kubesched ${store.meta.version}`), copy);
  const title = h("title", null, `kubesched: ${store.meta.title}`);
  const policy = h("meta", { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; style-src 'unsafe-inline'; img-src data:" });
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  const text = `<!doctype html>\n<html lang="en" data-theme="${theme}"><head><meta charset="utf-8">${policy.outerHTML}${title.outerHTML}<style>${style}</style></head>${body.outerHTML}</html>\n`;
  const url = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  const anchor = h("a", { href: url, download: `kubesched-${location.hash.replace(/^#\/?/, "").split("?")[0] || "map"}.html` });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function wholeTable(table) {
  const all = table.rows(), rows = all.slice(0, MOST_ROWS);
  return h("div", null, h("table", { class: "rows" },
    h("thead", null, h("tr", null, table.columns.map((column) => h("th", null, column.title)))),
    h("tbody", null, rows.map((row, i) => h("tr", null, table.columns.map((column) => h("td", null, column.cell ? column.cell(row, i) : column.value(row))))))),
    all.length > rows.length && h("p", null, `The first ${rows.length} of ${all.length} rows.`));
}
