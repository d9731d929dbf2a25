// A grid of any number of rows, of which only those in sight are elements. The grid keeps the focus, and names the active
// cell with aria-activedescendant, because the elements of rows are used again for other rows when it scrolls.

import { el, set, write } from "./dom.js";

const ROW_PX = 30;
const EXTRA_ROWS = 6;

export class Grid {
  /** `columns`: [{name, title, className, cell(item) → {text, className, label}}]; `open(item)`: Enter or a click. */
  constructor({ label, columns, keyOf, rowClass, open }) {
    Object.assign(this, { keyOf, rowClass, open, items: [], active: [0, 0], pool: new Map() });
    this.head = el("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 });
    this.space = el("div", { class: "grid-space", role: "rowgroup" });
    this.body = el(
      "div",
      {
        role: "grid",
        class: "grid-scroll",
        tabindex: 0,
        "aria-label": label,
        "aria-readonly": "true",
        onkeydown: (event) => this.move(event),
        onfocus: () => this.draw(),
        onscroll: () => this.draw(),
      },
      el("div", { role: "rowgroup", class: "grid-top" }, this.head),
      this.space,
    );
    this.element = el("div", { class: "grid" }, this.body);
    this.id = `grid-${Math.random().toString(36).slice(2, 8)}`;
    this.setColumns(columns);
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  setColumns(columns) {
    this.columns = columns;
    this.head.replaceChildren(
      ...columns.map((column) =>
        el("div", { role: "columnheader", class: `cell ${column.className}`, title: column.title }, column.name),
      ),
    );
    set(this.body, "aria-colcount", columns.length);
    for (const node of this.pool.values()) node.remove();
    this.pool.clear();
  }

  setItems(items) {
    this.items = items;
    set(this.body, "aria-rowcount", items.length + 1);
    this.space.style.height = `${items.length * ROW_PX}px`;
    this.active[0] = Math.max(0, Math.min(this.active[0], items.length - 1));
    this.draw();
  }

  /** Draw the rows in sight. Their number depends on the height of the grid alone. */
  draw() {
    const [first, last] = this.range();
    const free = [];
    for (const [index, node] of this.pool) {
      if (index >= first && index < last) continue;
      this.pool.delete(index);
      free.push(node);
    }
    for (let index = first; index < last; index += 1) {
      const node = this.pool.get(index) ?? this.placed(free.pop() ?? this.newRow(), index);
      this.drawRow(node, index);
    }
    for (const node of free) node.remove();
    set(this.body, "aria-activedescendant", this.pool.has(this.active[0]) ? this.cellId(...this.active) : null);
  }

  range() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - EXTRA_ROWS);
    const seen = Math.ceil((this.body.clientHeight || 400) / ROW_PX) + 2 * EXTRA_ROWS;
    return [first, Math.min(this.items.length, first + seen)];
  }

  newRow() {
    const node = el(
      "div",
      { role: "row", class: "grid-row" },
      this.columns.map((column, at) =>
        el("div", { role: "gridcell", class: `cell ${column.className}`, "aria-colindex": at + 1 }),
      ),
    );
    node.addEventListener("click", () => this.clicked(node.index));
    this.space.append(node);
    return node;
  }

  placed(node, index) {
    node.index = index;
    node.style.transform = `translateY(${index * ROW_PX}px)`;
    set(node, "aria-rowindex", index + 2);
    this.pool.set(index, node);
    return node;
  }

  drawRow(node, index) {
    const item = this.items[index];
    set(node, "class", `grid-row ${index % 2 ? "odd" : "even"} ${this.rowClass(item)}`);
    set(node, "data-key", this.keyOf(item));
    this.columns.forEach((column, at) => {
      const cell = node.children[at];
      const { text, className = "", label = null } = column.cell(item);
      const isActive = index === this.active[0] && at === this.active[1];
      write(cell, text);
      set(cell, "id", this.cellId(index, at));
      set(cell, "class", `cell ${column.className} ${className}${isActive ? " active" : ""}`);
      set(cell, "aria-label", label);
      set(cell, "title", label);
    });
  }

  cellId(row, column) {
    return `${this.id}-${row}-${column}`;
  }

  clicked(index) {
    this.active = [index, this.active[1]];
    this.open(this.items[index]);
  }

  move(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_PX) - 2);
    const steps = {
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      PageDown: [page, 0],
      PageUp: [-page, 0],
      Home: [event.ctrlKey ? -Infinity : 0, -Infinity],
      End: [event.ctrlKey ? Infinity : 0, Infinity],
    };
    const step = steps[event.key];
    if (event.key === "Enter" && this.items.length) this.open(this.items[this.active[0]]);
    if (!step || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.activate(this.active[0] + step[0], this.active[1] + step[1]);
  }

  /** Make a cell the active one, and scroll it into sight. */
  activate(row, column) {
    const within = (value, length) => Math.max(0, Math.min(value, length - 1));
    this.active = [within(row, this.items.length), within(column, this.columns.length)];
    const top = this.active[0] * ROW_PX;
    const { scrollTop, clientHeight } = this.body;
    const height = clientHeight - this.head.offsetHeight;
    if (top < scrollTop) this.body.scrollTop = top;
    if (top + ROW_PX > scrollTop + height) this.body.scrollTop = top + ROW_PX - height;
    this.draw();
  }
}
