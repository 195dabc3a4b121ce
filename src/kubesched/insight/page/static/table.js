// A table of any length: only the rows in sight exist. Columns sort; rows can be opened with Enter or a click.
import { fill, h, perFrame } from "./dom.js";
import { natural } from "./format.js";

const ROW = 30;

// columns: [{key, title, width, right, value(row) -> comparable, cell(row) -> Node|text}]
export function virtualTable(label, columns, options = {}) {
  let rows = [], sort = options.sort || null, order = [], focused = -1;
  const head = h("thead"), body = h("tbody");
  const table = h("table", { class: "rows", "aria-rowcount": 0 }, h("caption", { class: "hidden" }, label), head, body);
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
  const empty = h("p", { class: "empty" }, options.empty || "Nothing here.");
  const whole = h("div", { class: "tablebox" }, box, empty);

  function drawHead() {
    fill(head, h("tr", null, columns.map((column) => {
      const is = sort && sort.key === column.key;
      const text = [column.title, h("span", { "aria-hidden": "true" }, is ? (sort.down ? " ↓" : " ↑") : "")];
      return h("th", { scope: "col", class: column.right ? "right" : "", style: { width: column.width || "auto" }, "aria-sort": is ? (sort.down ? "descending" : "ascending") : null },
        column.value ? h("button", { type: "button", title: column.hint || `Sort by ${column.title}`, onclick: () => resort(column.key) }, text) : h("span", { title: column.hint || null }, text));
    })));
  }

  function resort(key) {
    sort = sort && sort.key === key ? (sort.down ? null : { key, down: true }) : { key, down: false };
    if (options.onsort) options.onsort(sort);
    arrange();
  }

  function arrange() {
    order = rows;
    const column = sort && columns.find((each) => each.key === sort.key);
    if (column) {
      const keyed = rows.map((row) => [column.value(row), row]);
      const sign = sort.down ? -1 : 1;
      keyed.sort(([a], [b]) => sign * natural(a, b));
      order = keyed.map(([, row]) => row);
    }
    drawHead();
    draw();
  }

  function drawRows() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const last = Math.min(order.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 10);
    const made = [spacer(first * ROW)];
    for (let i = first; i < last; i++) made.push(line(order[i], i));
    made.push(spacer((order.length - last) * ROW));
    const had = body.contains(document.activeElement) && document.activeElement.matches("tr");
    fill(body, made);
    if (had) focusRow(focused);
    table.setAttribute("aria-rowcount", order.length + 1);
    whole.style.maxHeight = `${order.length ? 45 + order.length * ROW : 200}px`;
    empty.hidden = order.length > 0;
    box.hidden = !order.length;
  }
  const draw = perFrame(drawRows);

  function line(row, i) {
    const opened = options.onopen;
    return h("tr", {
      class: options.selected && options.selected(row) ? "selected" : options.mark && options.mark(row) ? "fresh" : "",
      "aria-rowindex": i + 2,
      "data-index": String(i),
      tabindex: opened ? "-1" : null,
      onclick: opened && ((event) => { if (!event.target.closest("a,button,input")) opened(row); }),
      onfocus: () => { focused = i; },
    }, columns.map((column) => h("td", { class: column.right ? "right" : "" }, column.cell ? column.cell(row, i) : column.value(row))));
  }

  function focusRow(i) {
    const found = body.querySelector(`tr[data-index="${i}"]`);
    if (found) found.focus({ preventScroll: true });
  }

  function scrollTo(i) {
    const top = i * ROW, room = box.clientHeight - ROW * 2;
    if (top < box.scrollTop || top > box.scrollTop + room) box.scrollTop = Math.max(0, top - room / 2);
  }

  box.addEventListener("scroll", draw, { passive: true });
  box.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 };
    if (event.key in moves && options.onopen) {
      event.preventDefault();
      focused = Math.max(0, Math.min(order.length - 1, focused + moves[event.key]));
      scrollTo(focused);
      drawRows();
      focusRow(focused);
    } else if (event.key === "Enter" && event.target.matches("tr") && options.onopen) options.onopen(order[focused]);
  });
  const observer = new ResizeObserver(draw);
  observer.observe(box);
  drawHead();

  return {
    element: whole,
    set(all) { rows = all; arrange(); },
    redraw: draw,
    reveal(test) { const i = order.findIndex(test); if (i >= 0) { scrollTo(i); draw(); } },
    rows: () => order,
    columns,
    stop: () => observer.disconnect(),
  };
}

function spacer(height) {
  return h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { style: { height: `${height}px` } }));
}
