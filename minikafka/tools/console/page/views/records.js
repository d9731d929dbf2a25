// The records of a topic: search by key, offset or time, and the tail. Records are hostile input: all of it is text.

import { events, get, segment } from "../lib/api.js";
import { el, fill, keyed, write } from "../lib/dom.js";
import { bytes, count, moment, number } from "../lib/format.js";
import { labelled } from "../lib/table.js";
import { indented } from "../lib/json.js";
import { gapOf, problemOf } from "./why.js";

const SHOWN_MAX = 300;
const PREVIEW_MAX = 300;
const LIMIT = 100;
const STARTS = { end: "the last records", start: "the beginning", offset: "an offset", time: "a time" };

export class Records {
  records = [];
  tail = null;
  form = "text";

  constructor(context, topic) {
    Object.assign(this, { context, topic });
    this.list = el("ol", { class: "records", "aria-label": "Records" });
    this.status = el("p", { class: "muted pad", role: "status" });
    this.element = el(
      "section",
      { class: "panel flush", "aria-label": "Records" },
      el(
        "div",
        { class: "bar" },
        el("h2", {}, "Records"),
        el("span", { class: "grow" }),
        this.formChoice(),
        this.tailButton(),
      ),
      (this.form_ = this.searchForm()),
      this.status,
      el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Record list" }, this.list),
    );
    if (!context.model.isReplay) this.load();
    else {
      this.form_.hidden = true;
      write(this.status, "The ledgers have no records: they are in the logs of the brokers.");
    }
  }

  formChoice() {
    this.choices = el("div", { class: "segmented", role: "group", "aria-label": "Show values as" });
    for (const form of ["text", "json", "hex"]) {
      this.choices.append(
        el(
          "button",
          {
            type: "button",
            "data-form": form,
            "aria-pressed": String(form === this.form),
            onclick: () => this.setForm(form),
          },
          form === "json" ? "JSON" : form,
        ),
      );
    }
    return this.choices;
  }

  setForm(form) {
    this.form = form;
    for (const button of this.choices.children)
      button.setAttribute("aria-pressed", String(button.dataset.form === form));
    this.list.keyedNodes = new Map();
    fill(this.list);
    this.draw();
  }

  tailButton() {
    this.follow = el(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        onclick: () => this.toggleTail(),
        disabled: this.context.model.isReplay,
      },
      "Follow new records",
    );
    return this.follow;
  }

  searchForm() {
    this.from = el(
      "select",
      { onchange: () => this.startChanged() },
      Object.entries(STARTS).map(([value, text]) => el("option", { value }, text)),
    );
    this.offset = el("input", { type: "number", min: 0, value: 0 });
    this.time = el("input", { type: "datetime-local", step: 1 });
    this.key = el("input", { type: "search", placeholder: "any" });
    this.partition = el("select", {}, el("option", { value: "" }, "all"));
    this.offsetField = labelled("Offset", this.offset);
    this.timeField = labelled("Time", this.time);
    this.startChanged();
    return el(
      "form",
      {
        class: "search",
        onsubmit: (event) => {
          event.preventDefault();
          this.load();
        },
      },
      labelled("From", this.from),
      this.offsetField,
      this.timeField,
      labelled("Partition", this.partition),
      labelled("Key", this.key),
      el("button", { type: "submit" }, "Search"),
    );
  }

  startChanged() {
    this.offsetField.hidden = this.from.value !== "offset";
    this.timeField.hidden = this.from.value !== "time";
  }

  setPartitions(total) {
    if (this.partition.options.length === total + 1) return;
    const chosen = this.partition.value;
    fill(
      this.partition,
      el("option", { value: "" }, "all"),
      Array.from({ length: total }, (_, at) => el("option", { value: at }, String(at))),
    );
    this.partition.value = Number(chosen) < total ? chosen : "";
  }

  start() {
    this.next = {};
    if (this.from.value === "end" && this.key.value) this.from.value = "start"; // a key may be anywhere
    if (this.from.value === "offset") return this.offset.value || "0";
    if (this.from.value === "time") return `@${this.time.value ? new Date(this.time.value).getTime() : 0}`;
    return this.from.value === "start" ? "start" : "end-50";
  }

  async load() {
    write(this.status, "Searching …");
    this.searched = 0;
    this.found = 0;
    this.records = [];
    this.search = (this.search ?? 0) + 1;
    const { search } = this;
    try {
      const answer = await this.ask(this.partition.value, this.start());
      if (search === this.search) this.receive(answer); // else a later search has begun
    } catch (error) {
      fill(this.status, problemOf(error));
    }
  }

  ask(partition, from) {
    return get(`api/records/${segment(this.topic)}`, { partition, from, key: this.key.value, limit: LIMIT });
  }

  /** Search on where the last search ended, in each partition. */
  async searchOn() {
    const places = Object.entries(this.next).map(([partition, offset]) => `${partition}:${offset}`);
    write(this.status, "Searching …");
    this.next = {};
    try {
      this.receive(await this.ask(this.partition.value, places.join(",")));
    } catch (error) {
      fill(this.status, problemOf(error));
    }
  }

  receive({ records, next, searched, unseen = [] }) {
    this.records = [...this.records, ...records].slice(-SHOWN_MAX);
    this.searched += searched ?? 0;
    this.next = { ...this.next, ...next };
    this.found += records.length;
    const shown = this.found > SHOWN_MAX ? `, the last ${SHOWN_MAX} shown` : "";
    const found = this.found ? `${count(this.found, "record")} found${shown}` : "No record found";
    const isMore = Object.keys(this.next).length > 0 && this.from.value !== "end";
    fill(
      this.status,
      `${found}; ${number(this.searched)} searched. `,
      isMore && el("button", { type: "button", onclick: () => this.searchOn() }, "Search on"),
      unseen.map(gapOf),
    );
    this.draw();
  }

  toggleTail() {
    if (this.tail) return this.endTail();
    this.tail = events(`api/tail/${segment(this.topic)}`);
    this.tail.addEventListener("records", (event) => this.append(JSON.parse(event.data)));
    this.follow.setAttribute("aria-pressed", "true");
    write(this.status, "New records appear at the top.");
  }

  endTail() {
    this.tail?.close();
    this.tail = null;
    this.follow.setAttribute("aria-pressed", "false");
  }

  append(data) {
    this.records = [...this.records, ...data.records].slice(-SHOWN_MAX);
    if (data.skipped)
      write(this.status, `${count(data.skipped, "record")} skipped: more are written than can be shown.`);
    this.draw();
  }

  draw() {
    const newest = [...this.records].sort((a, b) => b.timestamp_ms - a.timestamp_ms || b.offset - a.offset);
    keyed(
      this.list,
      newest,
      (record) => `${record.partition}-${record.offset}`,
      (record) => this.entry(record),
    );
  }

  entry(record) {
    const value = valueOf(record.value, this.form);
    const preview = value.length > PREVIEW_MAX ? `${value.slice(0, PREVIEW_MAX)} …` : value;
    const details = el(
      "details",
      {},
      el(
        "summary",
        {},
        el("span", { class: "mono place" }, `${record.partition} @ ${number(record.offset)}`),
        el("span", { class: "mono key" }, textOf(record.key)),
        el("span", { class: "mono preview" }, this.form === "json" ? preview.replace(/\s+/g, " ") : preview),
      ),
    );
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(this.whole(record, value));
    });
    return el("li", {}, details);
  }

  whole(record, value) {
    const fact = (name, text) => el("div", {}, el("dt", {}, name), el("dd", {}, text));
    const headers = record.headers ?? [];
    return el(
      "div",
      { class: "record" },
      el(
        "dl",
        { class: "facts" },
        fact("Partition", String(record.partition)),
        fact("Offset", number(record.offset)),
        fact("Time", moment(record.timestamp_ms)),
        fact("Size", bytes(record.value?.size ?? 0)),
        record.value?.is_cut && fact("Shown", "the first 16 KiB"),
        fact("Key", textOf(record.key)),
      ),
      headers.length
        ? el(
            "table",
            { "aria-label": "Headers" },
            el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Header"), el("th", { scope: "col" }, "Value"))),
            el(
              "tbody",
              {},
              headers.map(([name, text]) =>
                el("tr", {}, el("td", { class: "mono" }, name), el("td", { class: "mono words" }, text ?? "null")),
              ),
            ),
          )
        : el("p", { class: "muted" }, "No headers."),
      el("pre", { class: "value", tabindex: 0, "aria-label": `Value as ${this.form}` }, value),
    );
  }

  close() {
    this.endTail();
  }
}

/** Return the value of a record as text, as indented JSON if it is JSON, or as rows of bytes. */
export function valueOf(value, form) {
  if (!value) return "null (a tombstone)";
  if (form === "hex") return hexRows(value.hex);
  return (form === "json" && indented(value.text ?? "")) || textOf(value);
}

function textOf(bytes) {
  if (!bytes) return "–";
  return bytes.text ?? `0x${bytes.hex}`;
}

function hexRows(hex) {
  const rows = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const text = pairs
      .map((pair) => String.fromCharCode(parseInt(pair, 16)))
      .join("")
      .replace(/[^ -~]/g, ".");
    rows.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${text}`);
  }
  return rows.join("\n");
}
