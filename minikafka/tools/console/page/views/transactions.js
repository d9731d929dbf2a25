// The view of transactions: open ones, and what each holds back from read_committed consumers.

import { get, polled, segment } from "../lib/api.js";
import { el, fill, link } from "../lib/dom.js";
import { count, duration, listed, number } from "../lib/format.js";
import { split } from "../lib/rows.js";
import { Table, once } from "../lib/table.js";
import { problemOf, whyPanel } from "./why.js";

const OPEN = new Set(["Ongoing", "PrepareCommit", "PrepareAbort"]);

export class TransactionsView {
  title = "Transactions";
  isOpenOnly = true;

  constructor(context) {
    this.context = context;
    this.problem = el("div", {});
    this.why = el("div", {});
    this.choice = el("button", { type: "button", "aria-pressed": "true", onclick: () => this.toggle() }, "Open only");
    this.summary = el("p", { class: "health", role: "status" });
    this.table = new Table({
      label: "Transactions", keyOf: (row) => row.transactional_id, empty: "No transaction is open.",
      columns: [
        { name: "Transactional id", className: "name", text: (row) => row.transactional_id },
        { name: "State", text: (row) => row.state },
        { name: "Open for", className: "number", text: (row) => (row.started_ms > 0 ? duration(Date.now() - row.started_ms) : "–") },
        { name: "Timeout", className: "number", text: (row) => duration(row.timeout_ms) },
        { name: "Producer", className: "mono", text: (row) => `${row.producer_id}/${row.epoch}` },
        { name: "Coordinator", text: (row) => (row.coordinator >= 0 ? `broker ${row.coordinator}` : "none") },
        { name: "Partitions", className: "words", text: (row) => listed(row.partitions) },
        { name: "Holds back", className: "words", node: (row, cell) => holdsBack(row, cell) },
        { name: "Actions", node: (row, cell) => once(cell, () => this.buttons(row)) },
      ],
    });
    this.element = el("div", { class: "view" },
      el("div", { class: "headline" }, el("h2", { class: "large" }, "Transactions"), el("span", { class: "grow" }), this.choice),
      this.problem, this.summary, this.why, el("section", { class: "panel flush" }, this.table.element));
    this.stop = polled(() => this.load(), 1500);
  }

  buttons(row) {
    const id = row.transactional_id;
    const abort = () => this.context.act({
      action: "abort-transaction", arguments: { transactional_id: id }, title: `Abort the transaction of ${id}`, dangerous: true,
    });
    const explain = () => {
      const panel = whyPanel(`why/transaction/${segment(id)}`);
      fill(this.why, panel.element);
      panel.load();
    };
    return el("div", { class: "buttons" },
      el("button", { type: "button", onclick: explain, "aria-label": `Why is the transaction of ${id} open?` }, "Why?"),
      el("button", { type: "button", class: "danger", onclick: abort, disabled: this.context.model.isReplay, "aria-label": `Abort the transaction of ${id}` }, "Abort…"));
  }

  toggle() {
    this.isOpenOnly = !this.isOpenOnly;
    this.choice.setAttribute("aria-pressed", String(this.isOpenOnly));
    this.table.none.textContent = this.isOpenOnly ? "No transaction is open." : "No producer has used a transactional id yet.";
    this.show();
  }

  async load() {
    try {
      this.rows = await get("api/transactions");
      fill(this.problem);
      this.show();
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  show() {
    const rows = this.rows ?? [];
    const open = rows.filter((row) => OPEN.has(row.state));
    const held = new Set(open.flatMap((row) => (row.holds_back ?? []).map((each) => each.partition)));
    this.summary.className = `health ${held.size ? "warn" : "ok"}`;
    const text = held.size ? `hold back the last stable offset of ${count(held.size, "partition")}` : "no last stable offset is held back";
    this.summary.textContent = `${count(open.length, "open transaction")}; ${open.length && held.size ? `they ${text}` : text}.`;
    this.table.show(this.isOpenOnly ? open : rows);
  }

  update() {}

  close() {
    this.stop();
  }
}

function holdsBack(row, cell) {
  const held = row.holds_back ?? [];
  if (!held.length) return "nothing";
  if (cell.held === JSON.stringify(held) && cell.firstElementChild) return cell.firstChild;  // its links keep the focus
  cell.held = JSON.stringify(held);
  return el("ul", { class: "plain" }, held.map((each) => el("li", {}, link(each.partition, "partition", ...split(each.partition)),
    ` at ${number(each.last_stable_offset)}: ${count(each.high_watermark - each.last_stable_offset, "record")} not visible to read_committed`)));
}
