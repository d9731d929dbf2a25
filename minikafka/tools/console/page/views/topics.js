// The view of all topics, and the form that creates one.

import { get, polled } from "../lib/api.js";
import { button, el, fill, headline, link } from "../lib/dom.js";
import { bytes, count, number } from "../lib/format.js";
import { Table, once } from "../lib/table.js";
import { problemOf } from "./why.js";

export class TopicsView {
  title = "Topics";
  topics = [];

  constructor(context) {
    this.context = context;
    this.problem = el("div", {});
    this.search = el("input", {
      type: "search",
      placeholder: "Filter by name  ( / )",
      "aria-label": "Filter topics by name",
      "data-filter": true,
      oninput: () => this.show(),
    });
    this.internal = el("input", { type: "checkbox", id: "internal", onchange: () => this.show() });
    this.table = buildTable();
    this.total = el("span", { class: "muted", role: "status" });
    this.element = el(
      "div",
      { class: "view" },
      headline("Topics", this.total, this.search, this.choice(), this.createButton()),
      this.problem,
      el("section", { class: "panel flush" }, this.table.element),
    );
    this.stop = polled(() => this.load(), 3000);
  }

  choice() {
    return el("label", { class: "check", for: "internal" }, this.internal, "internal topics");
  }

  createButton() {
    return button("Create topic…", () => this.create(), { class: "primary", disabled: this.context.model.isReplay });
  }

  create() {
    const brokers = Math.max(1, this.context.model.brokers.size);
    this.context.act({
      action: "create-topic",
      title: "Create a topic",
      arguments: {},
      done: () => this.load(),
      fields: [
        {
          name: "topic",
          label: "Name",
          required: true,
          hint: "letters, digits, full stops, underscores and hyphens; at most 249",
        },
        { name: "partitions", label: "Partitions", kind: "integer", value: 3, min: 1, required: true },
        {
          name: "replication_factor",
          label: "Replication factor",
          kind: "integer",
          value: Math.min(3, brokers),
          min: 1,
          max: brokers,
          required: true,
        },
        { name: "configs", label: "Settings", hint: "optional: retention.ms=60000,cleanup.policy=compact" },
      ],
    });
  }

  async load() {
    try {
      this.topics = await get("api/topics");
      fill(this.problem);
      this.show();
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  show() {
    const text = this.search.value.trim().toLowerCase();
    const shown = this.topics.filter(
      (topic) => topic.topic.toLowerCase().includes(text) && (this.internal.checked || !topic.internal),
    );
    this.table.show(shown.sort((a, b) => a.topic.localeCompare(b.topic)));
    this.total.textContent = count(shown.length, "topic");
  }

  update() {}

  close() {
    this.stop();
  }
}

function buildTable() {
  return new Table({
    label: "Topics",
    keyOf: (topic) => topic.topic,
    empty: "No topic has this name, or there is none yet. Create one with the button above.",
    columns: [
      {
        name: "Topic",
        className: "name",
        node: (topic, cell) => once(cell, () => link(topic.topic, "topics", topic.topic)),
      },
      { name: "Partitions", className: "number", text: (topic) => number(sizeOf(topic.partitions)) },
      { name: "Replication", className: "number", text: (topic) => number(topic.replication_factor) },
      { name: "Size", className: "number", text: (topic) => bytes(topic.bytes) },
      { name: "Own settings", className: "words mono", text: (topic) => settingsOf(topic.configs) },
    ],
  });
}

const sizeOf = (partitions) => (Array.isArray(partitions) ? partitions.length : partitions);

function settingsOf(configs) {
  const entries = Array.isArray(configs)
    ? configs.map((each) => [each.name, each.value])
    : Object.entries(configs ?? {});
  return entries.length ? entries.map(([name, value]) => `${name}=${value}`).join(", ") : "–";
}
