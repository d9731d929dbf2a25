// Tables, lists of facts and empty states.

import { el, keyed, set, write } from "./dom.js";

/** A table of which the rows are kept by key. `columns`: [{name, className, draw(cell, item)}]. */
export class Table {
  constructor({ label, columns, keyOf, empty, rowAttributes = () => ({}) }) {
    Object.assign(this, { columns, keyOf, empty, rowAttributes });
    this.body = el("tbody", {});
    this.none = el("p", { class: "empty", hidden: true }, empty);
    this.table = el(
      "table",
      { "aria-label": label },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map((column) => el("th", { scope: "col", class: column.className }, column.name)),
        ),
      ),
      this.body,
    );
    this.element = el("div", { class: "table" }, this.table, this.none);
  }

  show(items) {
    keyed(
      this.body,
      items,
      this.keyOf,
      (item) => this.row(item),
      (row, item) => this.update(row, item),
    );
    this.none.hidden = items.length > 0;
    this.table.hidden = items.length === 0;
  }

  row(item) {
    return el(
      "tr",
      {},
      this.columns.map((column) => el("td", { class: column.className, "data-label": column.name })),
    );
  }

  update(row, item) {
    for (const [name, value] of Object.entries(this.rowAttributes(item))) set(row, name, value);
    this.columns.forEach((column, at) => {
      const cell = row.children[at];
      const drawn = column.text ? column.text(item) : column.node(item, cell);
      if (typeof drawn === "string") write(cell, drawn);
      else if (drawn && cell.firstChild !== drawn) cell.replaceChildren(drawn);
    });
  }
}

/** Return the node that a cell has already, or make it: buttons and links in cells keep the focus. */
export function once(cell, make) {
  return cell.firstChild ?? make();
}

let fields = 0;

/** Return a field: its input with a label above, and perhaps a hint below, which belong to it also for screen readers. */
export function labelled(label, input, hint = "") {
  fields += 1;
  const id = `field-${fields}`;
  set(input, "id", id);
  if (hint) set(input, "aria-describedby", `${id}-hint`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    input,
    hint ? el("small", { class: "muted", id: `${id}-hint` }, hint) : null,
  );
}

export const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
