// The view of transactions: open ones, and what each holds back from read_committed consumers.

import { get, polled, segment } from "../lib/api.js";
import { el, fill, headline, link } from "../lib/dom.js";
import { count, duration, listed, number } from "../lib/format.js";
import { split } from "../lib/rows.js";
import { Table, once } from "../lib/table.js";
import { problemOf, whyPanel } from "./why.js";

export class TransactionsView {
  title = "Transactions";

  constructor(context) {
    this.context = context;
    this.problem = el("div", {});
    this.why = el("div", {});
    this.summary = el("p", { class: "health", role: "status" });
    this.table = this.buildTable();
    this.element = el(
      "div",
      { class: "view" },
      headline("Open transactions"),
      this.problem,
      this.summary,
      this.why,
      el("section", { class: "panel flush" }, this.table.element),
    );
    this.stop = polled(() => this.load(), 1500);
  }

  buildTable() {
    return new Table({
      label: "Transactions",
      keyOf: (row) => row.transactional_id ?? `${row.producer_id} ${row.partitions}`,
      empty: "No transaction is open.",
      columns: [
        {
          name: "Transactional id",
          className: "name",
          text: (row) => row.transactional_id ?? "not known to a coordinator",
        },
        { name: "State", text: (row) => row.state },
        {
          name: "Open for",
          className: "number",
          text: (row) => (row.started_ms > 0 ? duration(Date.now() - row.started_ms) : "–"),
        },
        { name: "Timeout", className: "number", text: (row) => duration(row.timeout_ms) },
        { name: "Producer", className: "mono", text: (row) => `${row.producer_id}/${row.epoch}` },
        { name: "Coordinator", text: (row) => (row.coordinator >= 0 ? `broker ${row.coordinator}` : "none") },
        { name: "Partitions", className: "words", text: (row) => listed(row.partitions) },
        { name: "Holds back", className: "words", node: (row, cell) => this.holdsBack(row, cell) },
        { name: "Actions", node: (row, cell) => row.transactional_id && once(cell, () => this.buttons(row)) },
      ],
    });
  }

  buttons({ transactional_id: id }) {
    const explain = () => {
      const panel = whyPanel(`why/transaction/${segment(id)}`);
      fill(this.why, panel.element);
      panel.load();
    };
    return el(
      "div",
      { class: "buttons" },
      el("button", { type: "button", onclick: explain, "aria-label": `Why is the transaction of ${id} open?` }, "Why?"),
      this.abortButton(`Abort the transaction of ${id}`, { transactional_id: id }),
    );
  }

  abortButton(title, values) {
    const abort = () =>
      this.context.act({
        action: "abort-transaction",
        title,
        arguments: values,
        dangerous: true,
        done: () => this.load(),
      });
    return el(
      "button",
      { type: "button", class: "danger", onclick: abort, disabled: this.context.model.isReplay, "aria-label": title },
      "Abort…",
    );
  }

  holdsBack({ holds_back: held, transactional_id: id }, cell) {
    if (!held.length) return "nothing";
    if (cell.held === JSON.stringify(held) && cell.firstElementChild) return cell.firstChild; // its links keep the focus
    cell.held = JSON.stringify(held);
    return el(
      "ul",
      { class: "plain" },
      held.map((each) => this.heldPartition(each, id)),
    );
  }

  heldPartition(held, id) {
    const [topic, partition] = split(held.partition);
    const values = { topic, partition, start_offset: held.start_offset };
    return el(
      "li",
      {},
      link(held.partition, "partition", topic, partition),
      ` at ${number(held.last_stable_offset)}: ${count(held.high_watermark - held.last_stable_offset, "record")} not visible to read_committed `,
      id ? null : this.abortButton(`Abort the transaction in ${held.partition}`, values),
    );
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
    const open = this.rows;
    const held = new Set(open.flatMap((row) => (row.holds_back ?? []).map((each) => each.partition)));
    this.summary.className = `health ${held.size ? "warn" : "ok"}`;
    const text = held.size
      ? `hold back the last stable offset of ${count(held.size, "partition")}`
      : "no last stable offset is held back";
    this.summary.textContent = `${count(open.length, "open transaction")}; ${open.length && held.size ? `they ${text}` : text}.`;
    this.table.show(open);
  }

  update() {}

  close() {
    this.stop();
  }
}
