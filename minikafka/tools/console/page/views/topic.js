// The view of one topic: its partitions, its settings and its records.

import { get, segment } from "../lib/api.js";
import { button, el, fill, headline, keyed, link, set, write } from "../lib/dom.js";
import { count, number } from "../lib/format.js";
import { partitionWords } from "../lib/health.js";
import { LOG_END, LOG_START, hasLeader, LEADER, severity, split } from "../lib/rows.js";
import { Table, once } from "../lib/table.js";
import { Records } from "./records.js";
import { problemOf } from "./why.js";

const PARTITIONS_SHOWN = 60;

export class TopicView {
  constructor(context, topic) {
    Object.assign(this, { context, topic, title: topic, model: context.model });
    this.partitions = el("ul", { class: "chips", "aria-label": "Partitions" });
    this.more = el("p", { class: "muted pad" });
    this.configs = this.configTable();
    this.problem = el("div", {});
    this.records = new Records(context, topic);
    this.element = el(
      "div",
      { class: "view" },
      headline(topic, "topic", this.buttons()),
      el(
        "section",
        { class: "panel", "aria-label": "Partitions" },
        el("div", { class: "bar" }, el("h2", {}, "Partitions")),
        this.partitions,
        this.more,
      ),
      this.records.element,
      this.settings(),
    );
    this.update();
  }

  buttons() {
    const disabled = this.model.isReplay;
    return el(
      "div",
      { class: "buttons" },
      button("Produce…", () => this.produce(), { class: "primary", disabled }),
      button("Add partitions…", () => this.alter(), { disabled }),
      button("Delete…", () => this.remove(), { class: "danger", disabled }),
    );
  }

  settings() {
    if (this.model.isReplay) return null;
    const details = el(
      "details",
      { ontoggle: (event) => event.target.open && this.load() },
      el("summary", { class: "bar" }, el("h2", {}, "Settings")),
      this.problem,
      this.configs.element,
    );
    return el("section", { class: "panel flush" }, details);
  }

  configTable() {
    return new Table({
      label: "Settings",
      keyOf: (config) => config.name,
      empty: "Reading the settings …",
      rowAttributes: (config) => ({ class: config.is_default ? "" : "own" }),
      columns: [
        { name: "Name", className: "name mono", text: (config) => config.name },
        { name: "Value", className: "mono words", text: (config) => String(config.value ?? "–") },
        { name: "Source", text: (config) => (config.source ?? "").toLowerCase().replaceAll("_", " ") },
        { name: "What it does", className: "words muted", text: (config) => config.doc ?? "" },
        { name: "Actions", node: (config, cell) => once(cell, () => this.configButtons(config)) },
      ],
    });
  }

  configButtons({ name, is_read_only: isReadOnly }) {
    if (isReadOnly) return null;
    const disabled = this.model.isReplay;
    return el(
      "div",
      { class: "buttons" },
      button("Set…", () => this.setConfig(name), { "aria-label": `Set ${name}`, disabled }),
      button("Reset…", () => this.changeConfig("delete-config", `Reset ${name} of ${this.topic}`, name), {
        "aria-label": `Reset ${name} to its default`,
        disabled,
      }),
    );
  }

  setConfig(name) {
    const value = String(this.values?.get(name) ?? "");
    this.changeConfig("set-config", `Set ${name} of ${this.topic}`, name, [
      { name: "value", label: name, value, required: true },
    ]);
  }

  changeConfig(action, title, name, fields = []) {
    this.context.act({ action, title, arguments: { topic: this.topic, name }, fields, done: () => this.load() });
  }

  async load() {
    if (this.model.isReplay) return;
    try {
      const configs = await get(`api/topics/${segment(this.topic)}/configs`);
      this.values = new Map(configs.map((config) => [config.name, config.value]));
      fill(this.problem);
      this.configs.show(configs);
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  produce() {
    this.context.act({
      action: "produce",
      title: `Produce one record to ${this.topic}`,
      arguments: { topic: this.topic },
      done: () => this.records.load(),
      fields: [
        { name: "value", label: "Value", kind: "lines", required: true },
        { name: "key", label: "Key", hint: "optional: records with the same key go to the same partition" },
        { name: "headers", label: "Headers", hint: "optional: name=value,name=value" },
        { name: "partition", label: "Partition", kind: "integer", min: 0, hint: "optional" },
      ],
    });
  }

  alter() {
    this.context.act({
      action: "alter-topic",
      title: `Add partitions to ${this.topic}`,
      arguments: { topic: this.topic },
      fields: [
        {
          name: "partitions",
          label: "Partitions in all",
          kind: "integer",
          min: 1,
          value: this.names().length + 1,
          required: true,
        },
      ],
    });
  }

  remove() {
    this.context.act({
      action: "delete-topic",
      title: `Delete ${this.topic}`,
      arguments: { topic: this.topic },
      dangerous: true,
      done: () => this.context.go("topics"),
    });
  }

  names() {
    return this.model.order.filter((name) => split(name)[0] === this.topic);
  }

  update() {
    const names = this.names();
    keyed(
      this.partitions,
      names.slice(0, PARTITIONS_SHOWN),
      String,
      (name) => {
        const node = el("li", {}, link(name, "partition", ...split(name)), el("span", { class: "chip-text" }));
        return node;
      },
      (node, name) => {
        const row = this.model.partitions.get(name);
        set(node, "class", ["", "warn", "bad"][severity(row)]);
        const leader = hasLeader(row) ? `leader ${row[LEADER]}` : "no leader";
        write(
          node.lastChild,
          `${leader}${row[LOG_END] >= 0 && row[LOG_END] !== null ? ` · ${number(row[LOG_END] - row[LOG_START])} records` : ""}${severity(row) ? ` · ${partitionWords(row)}` : ""}`,
        );
      },
    );
    const more = names.length - PARTITIONS_SHOWN;
    write(this.more, more > 0 ? `The view of the cluster shows ${count(more, "further partition")}.` : "");
    if (!names.length) fill(this.partitions, el("li", { class: "empty" }, "The cluster has no topic of this name."));
    this.records.setPartitions(names.length);
  }

  close() {
    this.records.close();
  }
}
